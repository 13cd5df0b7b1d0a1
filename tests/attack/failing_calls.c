/* LD_PRELOAD: a call of libc fails with an error that a test has chosen. See failing_calls.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum kind { ANY, UDP, COMMAND, LANE, TCP, CLIENT };

struct plan { /* as failing_calls.PLAN */
    char calls[64]; /* |name|name| */
    int32_t kind, port, error, left, fired, pid, inode;
};

static volatile struct plan *plan;
static int command = -1; /* the argument after --fd */

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAILING_CALLS");
    int fd = path ? REAL(open)(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *mapped = REAL(mmap)(0, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REAL(close)(fd);
    char line[4096] = "";
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t size = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file)
        fclose(file);
    for (char *at = line; at < line + size; at += strlen(at) + 1)
        if (!strcmp(at, "--fd") && at + 5 < line + size)
            command = atoi(at + 5);
    plan = mapped == MAP_FAILED ? 0 : mapped;
}

static int port_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)address)->sin_port);
    return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
}

static int is_kind(int fd)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t size = sizeof own, other_size = sizeof other;
    struct stat about;
    if (plan->inode && (REAL(fstat)(fd, &about) || (int32_t)about.st_ino != plan->inode))
        return 0;
    if (plan->kind == ANY)
        return 1;
    if (plan->kind == COMMAND || fd == command)
        return plan->kind == COMMAND && fd == command;
    if (REAL(getsockname)(fd, (struct sockaddr *)&own, &size))
        return 0;
    int type = 0;
    socklen_t type_size = sizeof type;
    REAL(getsockopt)(fd, SOL_SOCKET, SO_TYPE, &type, &type_size);
    int named = size > sizeof own.ss_family && own.ss_family == AF_UNIX;
    switch (plan->kind) {
    case LANE: return own.ss_family == AF_UNIX && type == SOCK_SEQPACKET && !named;
    case CLIENT: return own.ss_family == AF_UNIX && type == SOCK_SEQPACKET && named;
    }
    if (own.ss_family == AF_UNIX || (plan->kind == UDP) != (type == SOCK_DGRAM))
        return 0;
    if (!plan->port || port_of(&own) == plan->port)
        return 1;
    return !REAL(getpeername)(fd, (struct sockaddr *)&other, &other_size) &&
           port_of(&other) == plan->port;
}

/* Whether this call is to fail; errno is set then. */
static int fails(const char *name, int fd)
{
    int before = errno;
    if (!plan || !plan->left || (plan->pid && plan->pid != getpid()) ||
        !strstr((const char *)plan->calls, name))
        return 0;
    int ours = is_kind(fd);
    errno = before;
    if (!ours || (plan->left > 0 && __sync_fetch_and_sub(&plan->left, 1) <= 0))
        return 0;
    __sync_fetch_and_add(&plan->fired, 1);
    errno = plan->error;
    return 1;
}

#define FAILS(name, fd, type, parameters, arguments)                                              \
    type name parameters                                                                          \
    {                                                                                             \
        return fails("|" #name "|", fd) ? (type)-1 : REAL(name) arguments;                        \
    }

FAILS(recvmmsg, fd, int, (int fd, struct mmsghdr *m, unsigned n, int f, struct timespec *t),
      (fd, m, n, f, t))
FAILS(sendmmsg, fd, int, (int fd, struct mmsghdr *m, unsigned n, int f), (fd, m, n, f))
FAILS(sendmsg, fd, ssize_t, (int fd, const struct msghdr *m, int f), (fd, m, f))
FAILS(recvmsg, fd, ssize_t, (int fd, struct msghdr *m, int f), (fd, m, f))
FAILS(send, fd, ssize_t, (int fd, const void *b, size_t n, int f), (fd, b, n, f))
FAILS(recv, fd, ssize_t, (int fd, void *b, size_t n, int f), (fd, b, n, f))
FAILS(accept4, fd, int, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f))
FAILS(connect, fd, int, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
FAILS(bind, fd, int, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
FAILS(shutdown, fd, int, (int fd, int how), (fd, how))
FAILS(getsockname, fd, int, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))
FAILS(setsockopt, fd, int, (int fd, int l, int o, const void *v, socklen_t n), (fd, l, o, v, n))
FAILS(getsockopt, fd, int, (int fd, int l, int o, void *v, socklen_t *n), (fd, l, o, v, n))
FAILS(epoll_wait, fd, int, (int fd, struct epoll_event *e, int n, int t), (fd, e, n, t))
FAILS(epoll_ctl, fd, int, (int fd, int o, int of, struct epoll_event *e), (fd, o, of, e))
FAILS(select, -1, int, (int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *t),
      (n, r, w, x, t))
FAILS(poll, -1, int, (struct pollfd *p, nfds_t n, int t), (p, n, t))
FAILS(socket, -1, int, (int d, int t, int p), (d, t, p))
FAILS(mincore, -1, int, (void *a, size_t n, unsigned char *v), (a, n, v))
FAILS(madvise, -1, int, (void *a, size_t n, int advice), (a, n, advice))
FAILS(mmap, fd, void *, (void *a, size_t n, int p, int f, int fd, off_t at), (a, n, p, f, fd, at))
FAILS(mmap64, fd, void *, (void *a, size_t n, int p, int f, int fd, off64_t at),
      (a, n, p, f, fd, at))

#define FAILS_WITH_ONE_MORE(name, request)                                                        \
    int name(int fd, request what, ...)                                                           \
    {                                                                                             \
        va_list more;                                                                             \
        va_start(more, what);                                                                     \
        void *argument = va_arg(more, void *);                                                    \
        va_end(more);                                                                             \
        return fails("|" #name "|", fd) ? -1 : REAL(name)(fd, what, argument);                    \
    }

FAILS_WITH_ONE_MORE(fcntl, int)
FAILS_WITH_ONE_MORE(fcntl64, int)
int ioctl(int fd, unsigned long request, ...);
FAILS_WITH_ONE_MORE(ioctl, unsigned long)

int close(int fd) /* as Linux does: the descriptor is gone in any case */
{
    int failed = fails("|close|", fd), number = errno, done = REAL(close)(fd);
    if (!failed)
        return done;
    errno = number;
    return -1;
}
