// lingering_ranks: an MPI program whose ranks stay a second after MPI_Init, so that they can be looked at.
#include <mpi.h>
#include <unistd.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    usleep(1500000);
    MPI_Finalize();
    return 0;
}
