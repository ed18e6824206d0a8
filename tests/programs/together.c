// together BYTES: an MPI program whose ranks ask for so many bytes each, at one time. Rank 0 says how many of them got
// theirs. Ends with 0 whatever came of it.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size, has, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    char *volatile block = malloc(bytes);
    if (block) memset(block, 1, bytes);
    has = block != NULL;
    MPI_Allreduce(&has, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d of %d\n", all, size);
        fflush(stdout);
    }
    free(block);
    MPI_Finalize();
    return 0;
}
