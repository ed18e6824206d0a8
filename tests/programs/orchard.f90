! orchard: a Fortran program whose procedures allocate by themselves: recursive ones, functions that give arrays and texts,
! types that own others, and output to internal files.
module trees
  implicit none
  type tree
    integer :: depth
    character(len=:), allocatable :: name
    double precision, allocatable :: leaves(:)
    type(tree), pointer :: left => null(), right => null()
  end type
contains
  recursive function grown(depth) result(root)
    integer, intent(in) :: depth
    type(tree), pointer :: root
    character(len=40) :: text
    allocate(root)
    root%depth = depth
    write (text, '(A,I0)') 'a tree of depth ', depth
    root%name = trim(text) // repeat('.', depth)
    root%leaves = series(10 * depth)
    if (depth > 1) then
      root%left => grown(depth - 1)
      root%right => grown(depth - 1)
    end if
  end function

  function series(length)
    integer, intent(in) :: length
    double precision, allocatable :: series(:)
    integer :: i
    allocate(series(length))
    series = [(sqrt(dble(i)), i = 1, length)]
  end function

  recursive subroutine felled(root)
    type(tree), pointer, intent(inout) :: root
    if (associated(root%left)) call felled(root%left)
    if (associated(root%right)) call felled(root%right)
    deallocate(root)
  end subroutine
end module trees

program orchard
  use trees
  implicit none
  type(tree), pointer :: root
  integer :: year
  do year = 1, 4
    root => grown(10)
    print '(A,F10.3)', root%name, sum(root%leaves)
    call felled(root)
  end do
end program orchard
