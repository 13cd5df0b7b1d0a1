/* Cables with a delay: carries frames between pairs of interfaces of one network namespace.
 *
 * cable OWNER (INTERFACE INTERFACE DELAY DELAY ROOM ROOM)...
 *
 * A frame that arrives at the first interface of a pair leaves the second one after the first
 * DELAY, in nanoseconds; the second DELAY and ROOM are those of the other direction. ROOM is the
 * most bytes that wait; a frame beyond it is dropped. The program returns when the cables carry
 * frames, and a child stays. The child ends with the process OWNER (0: with none), on SIGTERM, or
 * when an interface is gone. Linux only (packet(7)); frames keep their order, bytes and offloads.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64                     /* frames per system call */
#define LARGEST (1 << 17)            /* bytes of a frame with offloads and of its virtio-net header */
#define BUFFER (32 << 20)            /* bytes of a socket's buffers: a millisecond of any link */
#define SECOND 1000000000LL          /* nanoseconds, as all times here */
#define LONGEST_NAP 1000000LL        /* between two looks at the sockets while frames wait */
#define SHORTEST_NAP 200000LL        /* a shorter one would cost more than to wait for frames */
#define LONGEST_JOIN 100000LL        /* most that a frame waits for the next, to leave together */
#define JOIN_SHARE 40                /* and at most this part of its delay */
#define RETRY 50000LL                /* after an interface had no room */
#define PATIENCE 10000000LL          /* a frame that its interface refuses for longer is lost */
#define ARGUMENTS 6                  /* of a cable */

/* A frame that waits, before its bytes. A record that ends the ring early has no length. */
struct record {
    int64_t due;
    uint64_t length;
};

/* One direction: a ring of records. `used` counts the bytes from `tail` to `head`. */
struct line {
    const char *name;                /* the interface that it reads */
    int in, out;
    int64_t delay;
    uint64_t room, used, head, tail;
    unsigned char *ring;
};

struct control {
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(struct timespec))];
};

static unsigned char *scratch;       /* frames that were just read */

static void fail(const char *what) {
    fprintf(stderr, "cable: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t clock_of(clockid_t id) {
    struct timespec at;
    clock_gettime(id, &at);
    return at.tv_sec * SECOND + at.tv_nsec;
}

static int opened(const char *name) {
    int yes = 1, size = BUFFER;
    /* Without a protocol it receives nothing until it is bound to its interface. */
    int made = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made < 0) fail("a packet socket");
    if (setsockopt(made, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes) ||
        setsockopt(made, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes) ||
        setsockopt(made, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes))
        fail("options of a packet socket");
    /* Beyond the system's limit, where the process may; up to it elsewhere. */
    if (setsockopt(made, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size))
        setsockopt(made, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    if (setsockopt(made, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size))
        setsockopt(made, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    struct sockaddr_ll where = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    where.sll_ifindex = (int)if_nametoindex(name);
    if (!where.sll_ifindex || bind(made, (struct sockaddr *)&where, sizeof where)) fail(name);
    return made;
}

static void open_line(struct line *line, const char *name, const char *delay, const char *room) {
    line->name = name;
    line->delay = strtoll(delay, NULL, 10);
    line->room = (strtoull(room, NULL, 10) + LARGEST) & ~7ULL;
    /* Untouched pages take no memory. */
    line->ring = mmap(NULL, line->room, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (line->ring == MAP_FAILED) fail("memory of a cable");
}

static uint64_t stored(uint64_t length) {
    return (sizeof(struct record) + length + 7) & ~7ULL;
}

static struct record *at(const struct line *line, uint64_t offset) {
    return (struct record *)(line->ring + offset);
}

/* The record at or after an offset: the ring's end may be too short for the next one. */
static uint64_t real(const struct line *line, uint64_t offset) {
    int ends = line->room - offset < sizeof(struct record) || !at(line, offset)->length;
    return ends ? 0 : offset;
}

static void store(struct line *line, const unsigned char *frame, uint64_t length, int64_t due) {
    if (!line->used) line->head = line->tail = 0; /* touch few pages */
    uint64_t needed = stored(length), rest = line->room - line->head;
    uint64_t skipped = rest < needed ? rest : 0;
    /* At least 8 bytes stay free, so that a full ring is not taken for an empty one. */
    if (line->used + skipped + needed + 8 > line->room) return;
    if (rest < needed) {
        if (rest >= sizeof(struct record)) at(line, line->head)->length = 0;
        line->head = 0;
    }
    at(line, line->head)->due = due;
    at(line, line->head)->length = length;
    memcpy(line->ring + line->head + sizeof(struct record), frame, length);
    line->head += needed;
    line->used += skipped + needed;
}

static void pop(struct line *line) {
    uint64_t first = real(line, line->tail);
    if (first != line->tail) line->used -= line->room - line->tail;
    uint64_t size = stored(at(line, first)->length);
    line->tail = first + size;
    line->used -= size;
}

/* How long ago a frame arrived: the kernel's stamp, without the time until it was read. */
static int64_t age(struct msghdr *message, int64_t wall, int64_t most) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
        struct timespec stamp;
        memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
        int64_t past = wall - (stamp.tv_sec * SECOND + stamp.tv_nsec);
        return past < 0 ? 0 : past < most ? past : most; /* the wall clock may be set meanwhile */
    }
    return 0;
}

/* Reads all frames that have arrived. Ends the program if the interface is gone. */
static void take(struct line *line) {
    static struct control controls[BATCH];
    struct mmsghdr messages[BATCH];
    struct iovec places[BATCH];
    for (int got = BATCH; got == BATCH;) {
        for (int i = 0; i < BATCH; i++) {
            places[i] = (struct iovec){scratch + (size_t)i * LARGEST, LARGEST};
            messages[i].msg_hdr = (struct msghdr){
                .msg_iov = &places[i], .msg_iovlen = 1,
                .msg_control = &controls[i], .msg_controllen = sizeof controls[i]};
        }
        got = recvmmsg(line->in, messages, BATCH, MSG_DONTWAIT, NULL);
        if (got < 0 && errno == ENETDOWN && !if_nametoindex(line->name)) exit(0);
        int64_t now = clock_of(CLOCK_MONOTONIC), wall = clock_of(CLOCK_REALTIME);
        for (int i = 0; i < got; i++) {
            int64_t past = age(&messages[i].msg_hdr, wall, line->delay);
            store(line, places[i].iov_base, messages[i].msg_len, now - past + line->delay);
        }
    }
}

/* Sends the frames that are due; a time at which to try again, or 0. */
static int64_t give(struct line *line, int64_t now) {
    while (line->used) {
        struct mmsghdr messages[BATCH];
        struct iovec places[BATCH];
        unsigned count = 0;
        for (uint64_t next = line->tail, seen = 0; count < BATCH && seen < line->used; count++) {
            uint64_t first = real(line, next);
            struct record *record = at(line, first);
            if (record->due > now) break;
            seen += (first == next ? 0 : line->room - next) + stored(record->length);
            next = first + stored(record->length);
            places[count] = (struct iovec){record + 1, record->length};
            messages[count].msg_hdr = (struct msghdr){.msg_iov = &places[count], .msg_iovlen = 1};
        }
        if (!count) return 0;
        int sent = sendmmsg(line->out, messages, count, MSG_DONTWAIT);
        if (sent <= 0) {
            int busy = errno == EAGAIN || errno == ENOBUFS || errno == EINTR;
            if (busy && now - at(line, real(line, line->tail))->due < PATIENCE) return now + RETRY;
            sent = 1; /* an interface that is down, or too small for the frame, loses it */
        }
        for (int i = 0; i < sent; i++) pop(line);
    }
    return 0;
}

/* When the next frames leave: frames that follow closely leave with the first. */
static int64_t leaves(const struct line *line) {
    uint64_t next = real(line, line->tail), end = line->head;
    int64_t join = line->delay / JOIN_SHARE, due = at(line, next)->due;
    int64_t last = due + (join < LONGEST_JOIN ? join : LONGEST_JOIN);
    for (int i = 0; i < BATCH && next != end && at(line, next)->due <= last; i++) {
        due = at(line, next)->due;
        next += stored(at(line, next)->length);
        if (next != end) next = real(line, next);
    }
    return due;
}

static int64_t sooner(int64_t one, int64_t other) {
    return !one || other < one ? other : one;
}

/* Sends all frames that are due; the time at which the next ones leave, or 0. */
static int64_t pass_on(struct line *lines, int count) {
    int64_t wake = 0;
    for (int i = 0; i < count; i++) {
        if (!lines[i].used) continue;
        int64_t again = give(&lines[i], clock_of(CLOCK_MONOTONIC));
        if (lines[i].used) wake = sooner(wake, again ? again : leaves(&lines[i]));
    }
    return wake;
}

/* Sleeps until a time, or until a socket can be read; 0: without an end. */
static void wait_for(struct pollfd *sockets, int count, int64_t wake, int64_t nap) {
    int64_t now = clock_of(CLOCK_MONOTONIC), left = wake > now ? wake - now : 0;
    if (wake && nap) { /* one wake-up for the frames of a while: none of them can be due sooner */
        int64_t most = left < nap ? left : nap;
        struct timespec rest = {most / SECOND, most % SECOND};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, NULL);
        left = 0;
    }
    struct timespec rest = {left / SECOND, left % SECOND};
    if (ppoll(sockets, (nfds_t)count, wake ? &rest : NULL, NULL) < 0 && errno != EINTR)
        fail("poll");
}

/* How long the sockets of all lines may stay unread while frames wait; 0: not at all. */
static int64_t longest_nap(const struct line *lines, int count) {
    int64_t most = LONGEST_NAP;
    for (int i = 0; i < count; i++) most = lines[i].delay / 2 < most ? lines[i].delay / 2 : most;
    return most < SHORTEST_NAP ? 0 : most;
}

static void carry(struct line *lines, int count, int owner) {
    struct pollfd *sockets = calloc((size_t)count + 1, sizeof *sockets);
    if (!sockets) fail("memory");
    for (int i = 0; i < count; i++) sockets[i] = (struct pollfd){lines[i].in, POLLIN, 0};
    sockets[count] = (struct pollfd){owner, POLLIN, 0};
    int64_t nap = longest_nap(lines, count);
    for (;;) {
        wait_for(sockets, count + 1, pass_on(lines, count), nap);
        if (sockets[count].revents) exit(0);
        for (int i = 0; i < count; i++)
            if (sockets[i].revents) take(&lines[i]);
    }
}

/* Punctual on a busy machine, where this process may; its work is bounded by the frames. */
static void hurry(void) {
    struct sched_param first = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &first)) setpriority(PRIO_PROCESS, 0, -20);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

int main(int argc, char **argv) {
    int cables = (argc - 2) / ARGUMENTS, owner = -1;
    if (cables < 1 || argc != 2 + cables * ARGUMENTS) {
        fprintf(stderr, "usage: cable OWNER (INTERFACE INTERFACE DELAY DELAY ROOM ROOM)...\n");
        return 2;
    }
    int pid = atoi(argv[1]);
    if (pid && (owner = (int)syscall(SYS_pidfd_open, pid, 0)) < 0) fail("the owner");
    struct line *lines = calloc((size_t)cables * 2, sizeof *lines);
    scratch = malloc((size_t)BATCH * LARGEST);
    if (!lines || !scratch) fail("memory");
    for (int i = 0; i < cables; i++) {
        char **given = argv + 2 + i * ARGUMENTS;
        struct line *forth = &lines[2 * i], *back = forth + 1;
        open_line(forth, given[0], given[2], given[4]);
        open_line(back, given[1], given[3], given[5]);
        forth->in = back->out = opened(forth->name);
        back->in = forth->out = opened(back->name);
    }
    pid_t child = fork(); /* the starter's wait ends when the cables carry frames */
    if (child < 0) fail("fork");
    if (child) return 0;
    setsid();
    for (int fd = 0; fd < 3; fd++) close(fd);
    if (chdir("/")) return 1; /* holds no folder */
    hurry();
    carry(lines, 2 * cables, owner);
}
