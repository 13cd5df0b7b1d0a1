/* Receives the datagrams of a socket, checks and groups them, and copies them to their places. */
#define _GNU_SOURCE
#include "datapath.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { GRO = 104, MARKED = 3 }; /* UDP_GRO of linux/udp.h; Congestion Experienced of RFC 3168 */

struct notes { /* control data of a message, from the kernel */
    uint32_t stride;
    uint32_t marked;
    int64_t arrived;
};

static uint8_t *data_of(const struct ring *ring)
{
    return (uint8_t *)(uintptr_t)ring->data;
}

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static struct notes notes_of(struct mmsghdr *message)
{
    struct notes notes = {message->msg_len, 0, 0};
    struct msghdr *m = &message->msg_hdr;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS &&
            c->cmsg_len >= CMSG_LEN(sizeof(struct timespec))) {
            struct timespec at;
            memcpy(&at, CMSG_DATA(c), sizeof at);
            notes.arrived = (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
        } else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == GRO &&
                   c->cmsg_len >= CMSG_LEN(sizeof(int32_t))) {
            int32_t stride;
            memcpy(&stride, CMSG_DATA(c), sizeof stride);
            if (stride > 0)
                notes.stride = (uint32_t)stride;
        } else if (((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
                    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)) &&
                   c->cmsg_len > CMSG_LEN(0)) {
            notes.marked = (*CMSG_DATA(c) & MARKED) == MARKED; /* IPv6: the low of 4 bytes */
        }
    }
    return notes;
}

static enum reject check(const struct ring *ring, const uint8_t *data, uint32_t length,
                         struct header *out)
{
    if (length > ring->longest || length > HEADER + MAX_SEGMENT)
        return TOO_LONG;
    if (length < HEADER)
        return SHORT;
    memcpy(out, data, HEADER);
    if (out->version != VERSION)
        return BAD_VERSION;
    if (out->flags & ~FLAGS)
        return BAD_FLAGS;
    if (out->path >= MAX_PATHS)
        return BAD_PATH;
    if (out->segment >= MAX_SEGMENTS)
        return BAD_SEGMENT;
    if (out->tag >= MAX_TAGS)
        return BAD_TAG;
    return GOOD;
}

/* The key of a sender's token; 0 where none is known, and core refuses the token. */
static const struct secret *secret_of(const struct ring *ring, uint64_t token)
{
    const struct key *keys = (const struct key *)(uintptr_t)ring->keys;
    if (!keys || !token)
        return 0;
    uint64_t at = token * 0x9E3779B97F4A7C15u >> 32;
    for (uint32_t i = 0; i <= ring->key_mask; i++) {
        const struct key *key = keys + ((at + i) & ring->key_mask);
        if (!key->token)
            return 0;
        if (key->token == token)
            return (const struct secret *)(uintptr_t)key->secret;
    }
    return 0;
}

static int is_genuine(const struct ring *ring, const struct header *h, const uint8_t *data,
                      uint32_t length)
{
    const struct secret *secret = secret_of(ring, h->token);
    return !secret || dlcpd_checksum(h, data + HEADER, length - HEADER, secret) == h->checksum;
}

static const struct table *table_of(const struct ring *ring)
{
    return (const struct table *)(uintptr_t)ring->table;
}

/* One segment of an open transfer, once. */
static void put(struct ring *ring, struct transfer *t, struct group *group, const uint8_t *data,
                uint32_t length, uint32_t segment)
{
    uint64_t offset = (uint64_t)segment * t->segment_size;
    if (segment >= t->segments || offset > t->size) {
        group->odd++;
        return;
    }
    uint64_t rest = t->size - offset;
    uint32_t size = rest < t->segment_size ? (uint32_t)rest : t->segment_size;
    uint8_t *received = (uint8_t *)(uintptr_t)t->received + segment;
    if (length != HEADER + size) {
        group->odd++;
        return;
    }
    if (*received) {
        group->duplicate++;
        return;
    }
    if (t->sum == NONE) {
        memcpy((uint8_t *)(uintptr_t)t->place + offset, data + HEADER, size);
    } else if (!dlcpd_add(table_of(ring), t, segment, offset, data + HEADER, size)) {
        ring->rejects[NO_PLACE]++;
        return;
    }
    *received = 1;
    t->missing--;
    group->fresh++;
}

static int belongs(const struct group *g, const struct header *h)
{
    return h->token == g->token && h->operation == g->operation && h->transfer == g->transfer &&
           h->stream == g->stream && h->round == g->round && h->path == g->path &&
           h->tag / DROP_PRECEDENCES == g->tag / DROP_PRECEDENCES;
}

static struct group *begin(struct ring *ring, const struct header *h, const struct notes *notes)
{
    if (ring->group_count == ring->group_max)
        return 0;
    struct group *g = (struct group *)(uintptr_t)ring->groups + ring->group_count++;
    memset(g, 0, sizeof *g);
    g->token = h->token;
    g->operation = h->operation;
    g->stream = h->stream;
    g->transfer = h->transfer;
    g->segment = h->segment;
    g->path = h->path;
    g->round = h->round;
    g->tag = h->tag;
    g->first_flags = h->flags;
    g->number = h->number;
    g->sent_at = h->sent_at;
    g->arrived = notes->arrived;
    g->row = dlcpd_find(table_of(ring), h);
    g->begin = ring->waiting_count;
    return g;
}

/* The open transfer of a group, at `row`; 0 where the row is NONE or another transfer's. */
static struct transfer *transfer_of(const struct ring *ring, const struct group *g, int32_t row)
{
    const struct table *table = table_of(ring);
    if ((uint32_t)row >= table->size)
        return 0;
    struct transfer *t = (struct transfer *)(uintptr_t)table->rows + row;
    int same = t->open && t->token == g->token && t->operation == g->operation &&
               t->stream == g->stream && t->transfer == g->transfer;
    return same ? t : 0;
}

static struct group *take_data(struct ring *ring, struct group *g, const struct header *h,
                               const struct notes *notes, uint32_t at, uint32_t length)
{
    if (!g || !belongs(g, h))
        g = begin(ring, h, notes);
    if (!g || (g->row == NONE && ring->waiting_count == ring->waiting_max)) {
        ring->rejects[NO_ROOM]++;
        return g;
    }
    g->count++;
    g->bytes += length;
    g->flags |= h->flags;
    g->last_flags = h->flags;
    g->marked += notes->marked;
    g->newest = h->number;
    if (g->row == NONE) {
        struct datagram *waiting = (struct datagram *)(uintptr_t)ring->waiting;
        waiting[ring->waiting_count++] = (struct datagram){at, length};
        return g;
    }
    struct transfer *t = transfer_of(ring, g, g->row);
    if (!t) {
        ring->rejects[NO_PLACE]++;
        return g;
    }
    if (h->round < t->least_round)
        g->duplicate++;
    else
        put(ring, t, g, data_of(ring) + at, length, h->segment);
    g->missing = t->missing;
    return g;
}

static void take_stray(struct ring *ring, const struct notes *notes, uint32_t at, uint32_t length)
{
    if (ring->stray_count == ring->stray_max) {
        ring->rejects[NO_ROOM]++;
        return;
    }
    struct stray *strays = (struct stray *)(uintptr_t)ring->strays;
    strays[ring->stray_count++] = (struct stray){at, length, notes->arrived};
}

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators") */
static uint32_t draw(struct ring *ring)
{
    ring->random ^= ring->random >> 12;
    ring->random ^= ring->random << 25;
    ring->random ^= ring->random >> 27;
    return (uint32_t)(ring->random * 0x2545F4914F6CDD1Du >> 32);
}

static int is_lost(struct ring *ring)
{
    return ring->loss && draw(ring) < ring->loss;
}

static void corrupt(struct ring *ring, uint8_t *data, uint32_t length)
{
    if (!ring->corrupt || !length || draw(ring) >= ring->corrupt)
        return;
    uint32_t bit = draw(ring) % (8 * length);
    data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    ring->corrupted++;
}

static struct group *take(struct ring *ring, struct group *current, const struct notes *notes,
                          uint32_t at, uint32_t length)
{
    uint8_t *data = data_of(ring) + at;
    struct header header;
    ring->datagrams++;
    if (is_lost(ring)) {
        ring->lost++;
        return current;
    }
    corrupt(ring, data, length);
    if (length < 2 || data[1] != DATA) {
        take_stray(ring, notes, at, length);
        return current;
    }
    enum reject verdict = check(ring, data, length, &header);
    if (verdict == GOOD && !is_genuine(ring, &header, data, length)) {
        ring->rejects[BAD_CHECKSUM]++;
        return current; /* as if it were lost */
    }
    if (verdict == GOOD)
        return take_data(ring, current, &header, notes, at, length);
    ring->rejects[verdict]++;
    return 0; /* a group ends where the twin's ends */
}

/* The last group, if its datagrams are placed: it may go on with the next call. */
static struct group *last_group(const struct ring *ring)
{
    if (!ring->group_count)
        return 0;
    struct group *last = (struct group *)(uintptr_t)ring->groups + ring->group_count - 1;
    return last->row == NONE ? 0 : last;
}

void dlcpd_digest(struct ring *ring, uint32_t count)
{
    struct mmsghdr *messages = (struct mmsghdr *)(uintptr_t)ring->messages;
    struct group *current = last_group(ring);
    if (count > ring->message_count)
        count = ring->message_count;
    for (uint32_t i = 0; i < count; i++) {
        struct notes notes = notes_of(messages + i);
        uint32_t begin = i * ring->spacing, size = messages[i].msg_len, step = notes.stride;
        if (messages[i].msg_hdr.msg_flags & MSG_TRUNC || size > ring->spacing) {
            ring->datagrams++;
            ring->rejects[TOO_LONG]++;
            continue;
        }
        ring->bytes += size;
        if (!step || step > size)
            step = size; /* one datagram, which may be empty */
        for (uint32_t at = 0; at < size || !at; at += step ? step : 1)
            current = take(ring, current, &notes, begin + at, size - at < step ? size - at : step);
    }
}

/* Address of a waiting datagram in the ring; 0 if it is outside. */
static const uint8_t *waiting_at(const struct ring *ring, const struct datagram *waiting)
{
    uint64_t size = (uint64_t)ring->message_count * ring->spacing;
    if (waiting->length < HEADER || waiting->at > size || waiting->length > size - waiting->at)
        return 0;
    return data_of(ring) + waiting->at;
}

void dlcpd_place(struct ring *ring, uint32_t number, int32_t row)
{
    if (number >= ring->group_count)
        return;
    struct group *g = (struct group *)(uintptr_t)ring->groups + number;
    const struct datagram *waiting = (const struct datagram *)(uintptr_t)ring->waiting + g->begin;
    struct transfer *t = transfer_of(ring, g, row);
    if (!t || g->begin > ring->waiting_count || g->count > ring->waiting_count - g->begin) {
        ring->rejects[NO_PLACE] += g->count;
        return;
    }
    for (uint32_t i = 0; i < g->count; i++) {
        const uint8_t *data = waiting_at(ring, waiting + i);
        struct header header;
        if (!data) {
            ring->rejects[NO_PLACE]++;
            continue;
        }
        memcpy(&header, data, HEADER);
        if (header.round < t->least_round)
            g->duplicate++;
        else
            put(ring, t, g, data, waiting[i].length, header.segment);
    }
    g->row = row;
    g->missing = t->missing;
}

/* Whether all data since group `from` are placed, so that the ring may be filled again. */
static int is_settled(const struct ring *ring, uint32_t from)
{
    const struct group *groups = (const struct group *)(uintptr_t)ring->groups;
    for (uint32_t i = from; i < ring->group_count; i++)
        if (groups[i].row == NONE)
            return 0;
    return !ring->stray_count;
}

static void start(struct ring *ring)
{
    ring->error = 0;
    ring->group_count = ring->waiting_count = ring->stray_count = 0;
    ring->calls = ring->filled = ring->datagrams = ring->bytes = ring->drained = ring->lost = 0;
    ring->corrupted = 0;
    memset(ring->rejects, 0, NO_PLACE * sizeof *ring->rejects);
}

/* Returns how many messages came, possibly 0. */
static uint32_t fill(struct ring *ring)
{
    struct mmsghdr *messages = (struct mmsghdr *)(uintptr_t)ring->messages;
    for (uint32_t i = 0; i < ring->message_count; i++)
        messages[i].msg_hdr.msg_controllen = CONTROL;
    int got = recvmmsg(ring->fd, messages, ring->message_count, MSG_DONTWAIT, 0);
    ring->calls++;
    if (got < 0 && errno != EAGAIN && errno != EINTR)
        ring->error = errno;
    ring->drained = !ring->error && got < (int)ring->message_count;
    return got < 0 ? 0 : (uint32_t)got;
}

void dlcpd_receive(struct ring *ring)
{
    uint32_t from = 0;
    start(ring);
    do {
        uint32_t got = fill(ring);
        from = ring->group_count;
        ring->filled += got;
        dlcpd_digest(ring, got);
    } while (!ring->drained && !ring->error && ring->bytes < ring->budget &&
             ring->group_count < ring->group_max / 2 && is_settled(ring, from));
    ring->wall = nanoseconds(CLOCK_REALTIME);
    ring->now = nanoseconds(CLOCK_MONOTONIC);
}
