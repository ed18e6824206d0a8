! heat: a Fortran program under MPI: each rank makes, fills and frees arrays, and rank 0 prints the sum of all.
program heat
  use mpi
  implicit none
  integer :: rank, ranks, error, step
  double precision :: mine, total
  double precision, allocatable :: field(:), old(:)
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  mine = 0
  do step = 1, 50
    allocate(field(1000 * step), old(1000 * step))
    old = dble(rank + step)
    field = 0.5d0 * old
    mine = mine + sum(field)
    deallocate(field, old)
  end do
  call MPI_Reduce(mine, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0) print '(A,I0,A,F16.1)', 'total of ', ranks, ' ranks:', total
  call MPI_Finalize(error)
end program heat
