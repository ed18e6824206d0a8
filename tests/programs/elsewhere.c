// elsewhere WAY MIB MILLISECONDS: has the kernel keep so much in something that is no memory of a process, tells how much that is and
// stays. 9: the way does not exist here.
#define _GNU_SOURCE
#include "taken.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

static size_t want;
static unsigned stay;
static char full[MIB];

static size_t write_out(int file) {
    size_t taken = 0;
    while (taken < want && write(file, full, MIB) == MIB) taken++;
    return taken;
}

// A file without a name in a directory.
static int nameless(const char *directory) { return open(directory, O_TMPFILE | O_RDWR, 0600); }

static size_t in_a_mapped_file(const char *directory) {
    int file = nameless(directory);
    if (file < 0 || ftruncate(file, (off_t)(want * MIB))) return 0;
    char *at = mmap(NULL, want * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) return 0;
    touch(at, want * MIB);
    return want;
}

// Each pipe as large as it may be.
static size_t in_pipes(int given) {
    size_t bytes = 0;
    while (bytes < want * MIB) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK)) break;
        int room = fcntl(ends[1], F_SETPIPE_SZ, MIB);
        if (room < PAGE) room = fcntl(ends[1], F_GETPIPE_SZ);
        size_t once = room < MIB ? (size_t)room : MIB;
        ssize_t done;
        if (given) {
            // The pages themselves, of which the process keeps none.
            char *part = mmap(NULL, once, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (part == MAP_FAILED) break;
            touch(part, once);
            struct iovec vector = {part, once};
            done = vmsplice(ends[1], &vector, 1, SPLICE_F_GIFT | SPLICE_F_NONBLOCK);
            munmap(part, once);
        } else done = write(ends[1], full, once);
        if (done <= 0) break;
        bytes += (size_t)done;
    }
    return bytes / MIB;
}

static size_t in_sockets(void) {
    size_t bytes = 0;
    while (bytes < want * MIB) {
        int ends[2], room = 8 * MIB;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) break;
        setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
        size_t before = bytes;
        for (ssize_t done; bytes < want * MIB && (done = send(ends[0], full, PAGE * 8, 0)) > 0;) bytes += (size_t)done;
        if (bytes == before) break;
    }
    return bytes / MIB;
}

// Buffers that a ring was told of, and that the process has no longer.
static size_t in_rings(void) {
    size_t taken = 0;
    while (taken < want) {
        struct io_uring_params params = {0};
        int ring = (int)syscall(SYS_io_uring_setup, 1, &params);
        if (ring < 0) break;
        char *part = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (part == MAP_FAILED) break;
        touch(part, MIB);
        struct iovec vector = {part, MIB};
        if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &vector, 1)) break;
        munmap(part, MIB);
        taken++;
    }
    return taken;
}

static void pass(int socket, int file) {
    char byte = 0, room[CMSG_SPACE(sizeof file)] = {0};
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file)};
    memcpy(CMSG_DATA(head), &file, sizeof file);
    if (sendmsg(socket, &message, 0) != 1) _exit(7);
}

static int passed(int socket) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int file = -1;
    if (recvmsg(socket, &message, 0) == 1) memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
}

// One maps it and ends; another, to whom it was passed, holds it; a third maps it too.
static size_t in_a_passed_memfd(int mapped) {
    int ends[2], file = memfd_create("passed", 0);
    if (file < 0 || ftruncate(file, (off_t)(want * MIB)) || socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)) return 0;
    pid_t holder = fork();
    if (holder == 0) {
        close(file);
        if ((file = passed(ends[1])) < 0) _exit(7);
        if (!mapped) _exit(write_out(file) == want ? (tell(want, stay), 0) : 6);
        char *at = mmap(NULL, want * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (at == MAP_FAILED) _exit(6);
        touch(at, want * MIB);
        tell(want, stay);
        _exit(0);
    }
    if (mapped && mmap(NULL, want * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED) want = 0;
    pass(ends[0], file);
    int status = 0;
    waitpid(holder, &status, 0);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
}

int main(int count, char **words) {
    if (count != 4) return 2;
    const char *way = words[1];
    want = strtoul(words[2], NULL, 10);
    stay = (unsigned)atoi(words[3]);
    struct rlimit files, all = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_MEMLOCK, &all);
    memset(full, 1, sizeof full);
    size_t taken = 0;
    if (!strcmp(way, "tmpfs")) taken = write_out(nameless("/dev/shm"));
    else if (!strcmp(way, "mapped-tmpfs")) taken = in_a_mapped_file("/dev/shm");
    else if (!strcmp(way, "mapped-file")) taken = in_a_mapped_file("/var/tmp");
    else if (!strcmp(way, "memfd")) taken = write_out(memfd_create("kept", 0));
    else if (!strcmp(way, "passed")) taken = in_a_passed_memfd(0);
    else if (!strcmp(way, "passed-mapped")) taken = in_a_passed_memfd(1);
    else if (!strcmp(way, "pipes")) taken = in_pipes(0);
    else if (!strcmp(way, "given-pages")) taken = in_pipes(1);
    else if (!strcmp(way, "sockets")) taken = in_sockets();
    else if (!strcmp(way, "rings")) taken = in_rings();
    if (taken == 0) return 9;
    tell(taken, stay);
    return 0;
}
