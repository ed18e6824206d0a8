// ranks MODE: an MPI program that counts its own calls in every rank (truth.h) and says what it computed.
//
// Built with any MPI's compiler. After the same work each mode ends in its own way:
//   exchange    big buffers are sent around a ring, freed, resized and sent again; the sums must hold; status 0
//   status      rank r ends with 40 + r after MPI_Finalize
//   abort       rank 1 calls MPI_Abort(…, 7) while the others wait for it
//   leave       all end by exit(0) without MPI_Finalize
//   wait        every rank writes a line and sleeps until a signal ends it
#include "truth.h"
#include <mpi.h>
#include <stdio.h>

static int rank, size;

static uint32_t sum_of(const unsigned char *p, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 16777619u;
    return h;
}
static void fill(unsigned char *p, size_t n, unsigned who, unsigned round) {
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(i * 31 + who * 7 + round);
}

// A registration cache that kept a freed buffer's pages would send what lay there before.
static void ring(unsigned round, size_t n) {
    unsigned char *out = t_malloc(n), *in = t_calloc(1, n);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    fill(out, n, (unsigned)rank, round);
    uint32_t mine = sum_of(out, n), theirs = 0;
    MPI_Sendrecv(out, (int)n, MPI_BYTE, next, 1, in, (int)n, MPI_BYTE, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&mine, 1, MPI_UINT32_T, next, 2, &theirs, 1, MPI_UINT32_T, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    T_CHECK(sum_of(in, n) == theirs);
    t_free(out);
    in = t_realloc(in, 2 * n);
    fill(in, 2 * n, (unsigned)rank, round + 100);
    out = t_malloc(2 * n);
    MPI_Sendrecv(in, (int)(2 * n), MPI_BYTE, before, 3, out, (int)(2 * n), MPI_BYTE, next, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    fill(in, 2 * n, (unsigned)next, round + 100);
    T_CHECK(memcmp(in, out, 2 * n) == 0);
    t_free(in);
    t_free(out);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "exchange";
    unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 6;
    uint64_t seed = 7;
    void *small[64] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    // A different number of calls in each rank.
    for (int i = 0; i < 1000 + 100 * rank; i++) {
        void **slot = &small[t_random(&seed) % 64];
        t_free(*slot);
        *slot = t_malloc(t_random(&seed) % 5000);
    }
    for (unsigned round = 0; round < rounds; round++) ring(round, (size_t)1 << (10 + 2 * (round % 6)));
    long mine = rank + 1, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    T_CHECK(all == (long)size * (size + 1) / 2);
    char line[64];
    int n = snprintf(line, sizeof line, "rank %d of %d: %ld\n", rank, size, all);
    T_CHECK(write(1, line, (size_t)n) == n);
    if (!strcmp(mode, "wait")) {
        truth_write();
        for (;;) pause();
    }
    if (!strcmp(mode, "abort")) {
        truth_write();
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
        for (;;) pause();
    }
    if (!strcmp(mode, "leave")) { truth_write(); MPI_Barrier(MPI_COMM_WORLD); exit(0); }
    MPI_Finalize();
    return strcmp(mode, "status") ? 0 : 40 + rank;
}
