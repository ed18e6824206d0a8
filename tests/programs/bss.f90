! Has 2 GiB of data that it does not touch, and says that it runs.
program bss
  implicit none
  integer(1), save :: most(2147483648_8)
  integer :: at
  at = command_argument_count() + 1000
  print *, 'main', most(at)
end program
