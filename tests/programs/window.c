// window BYTES: an MPI program whose ranks share a window of so many bytes, of which each asks for its part. Waits until all
// have it and have written into it, and gives it back. Each rank asks for one block of 1000 bytes before MPI_Init, in the program.
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    void *volatile block = malloc(1000);
    int rank, size;
    MPI_Win window;
    char *part = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long bytes = argc > 1 ? atol(argv[1]) / size : 0;
    MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &part, &window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (bytes > 0) memset(part, rank, (size_t)bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&window);
    MPI_Finalize();
    free(block);
    return 0;
}
