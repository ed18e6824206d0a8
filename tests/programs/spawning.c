// spawning [COMMAND ARGUMENT…]: every rank counts its own calls (truth.h); together they have two more processes made by
// MPI_Comm_spawn, which run COMMAND (this program itself, if none is given), send a number back and leave.
#include "truth.h"
#include <mpi.h>

static void work(int calls) {
    for (int i = 0; i < calls; i++) t_free(t_malloc(100 + (size_t)i));
}

int main(int argc, char **argv) {
    int rank, sum = 0, mine = 0;
    MPI_Comm other;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&other);
    if (other == MPI_COMM_NULL) {
        work(500 + 10 * rank);
        MPI_Comm_spawn(argc > 1 ? argv[1] : argv[0], argc > 2 ? argv + 2 : MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other,
                       MPI_ERRCODES_IGNORE);
        MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, rank == 0 ? MPI_ROOT : MPI_PROC_NULL, other);
        T_CHECK(rank != 0 || sum == 31);
        work(20);
    } else {
        work(300 + 10 * rank);
        mine = 15 + rank;
        MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, 0, other);
    }
    MPI_Comm_disconnect(&other);
    MPI_Finalize();
    return 0;
}
