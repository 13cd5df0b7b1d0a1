/* The compiled data path: batches of datagrams between the kernel and their places in memory.
 *
 * C99 and Linux, no Python in it, no allocation, no state but the structs below, which Python lays
 * out as numpy arrays (library.py; docs/datapath.md). Addresses are uint64_t, so that both sides
 * see one layout. Its numpy twin is the specification: dlcpd/core/wire/rows.py and
 * dlcpd/core/transfer/incoming.py for receiving, dlcpd/io/udp/send_ring.py for sending.
 * It moves bytes of transfers that Python has opened; every decision stays with Python.
 */
#ifndef DLCPD_DATAPATH_H
#define DLCPD_DATAPATH_H

#include <stdint.h>

enum { /* docs/wire.md */
    HEADER = 40,
    SEALED = 32, /* bytes before the checksum, which covers them */
    VERSION = 0xD5,
    DATA = 1,
    FLAGS = 1 | 2 | 4 | 8 | 16,
    MAX_PATHS = 16,
    MAX_SEGMENTS = 4096,
    DROP_PRECEDENCES = 4,
    MAX_TAGS = 32,
    STAMPED = 32, /* first datagrams of a batch, which carry its send time */
};

enum { /* of this interface */
    MAX_SEGMENT = 8896,
    CONTROL = 128, /* bytes of control messages that the kernel may add to a message */
    NONE = -1,     /* no transfer */
    MAX_OPERANDS = 64,
};

/* Why data are refused; library.py has the names. */
enum reject { GOOD, SHORT, BAD_VERSION, BAD_FLAGS, BAD_PATH, BAD_SEGMENT, BAD_TAG, TOO_LONG,
              NO_ROOM, BAD_CHECKSUM,
              NO_PLACE, /* no transfer to write to, or another one; never reset */
              REJECTS };

struct header { /* little-endian, as on the wire */
    uint8_t version, kind, flags, path;
    uint32_t operation;
    uint64_t token;
    uint16_t stream, transfer, segment;
    uint8_t round, tag;
    uint32_t number, sent_at;
    uint64_t checksum;
};

/* --- checksums of data: checksum.c --- */

struct secret { /* of one direction of a flow; core.wire.checksum.Checksum.material */
    uint64_t prf[2];
    uint32_t nh[(SEALED + MAX_SEGMENT) / 4];
};

struct key { /* a row of the table of senders' keys; token 0: free */
    uint64_t token;
    uint64_t secret; /* struct secret */
};

/* NH of `size` bytes, padded with zeros to whole words of 8 bytes. */
uint64_t dlcpd_nh(const uint8_t *data, uint64_t size, const uint32_t *key);

/* NH of `count` rows of `size` bytes that begin `stride` bytes apart. */
void dlcpd_nh_rows(const uint8_t *data, uint64_t count, uint64_t stride, uint64_t size,
                   const uint32_t *key, uint64_t *out);

/* The checksum of a data datagram: a header, and `size` bytes at `payload`. */
uint64_t dlcpd_checksum(const struct header *header, const uint8_t *payload, uint32_t size,
                        const struct secret *secret);

/* --- transfers that are open here: table.c --- */

struct transfer {
    uint64_t token;
    uint32_t operation;
    uint16_t stream, transfer;
    uint64_t place;       /* of segment 0 */
    uint64_t received;    /* uint8_t[segments], 0 or 1: numpy's bool */
    uint32_t size;        /* bytes */
    uint32_t segment_size, segments, missing;
    uint32_t least_round; /* segments of earlier rounds are too late */
    int32_t next;         /* row of the next in its bucket, or NONE; C's */
    int32_t sum;          /* row of its sum, or NONE: segments are only placed */
    uint32_t generation;  /* of that row when the transfer was opened */
    uint32_t operand;     /* index of this transfer in the sum's operands */
    uint32_t open;        /* 1: dlcpd_find finds it; C's */
};

struct table {
    uint64_t rows;    /* struct transfer[size] */
    uint64_t buckets; /* int32_t[mask + 1]: row of the first, or NONE */
    uint64_t sums;    /* struct sum[sum_count] */
    uint32_t mask, size, sum_count, reserved;
};

/* Let dlcpd_find find the transfer that Python has written to `row`. 0 where it is refused: the
 * row is outside the table or already open, or its sum does not match the transfer. */
int32_t dlcpd_open(struct table *table, int32_t row);

/* Forget a row, and clear it. 0 where it was not open. */
int32_t dlcpd_close(struct table *table, int32_t row);

/* Row of the transfer that a header belongs to, or NONE. */
int32_t dlcpd_find(const struct table *table, const struct header *header);

/* --- adding up: sum.c --- */

/* Float32 operands that are added up segment by segment: the last one of a segment is added from
 * where it was received, the others wait in their places. The order of addition is that of the
 * operands, whatever the order of arrival. */
struct sum {
    uint64_t target;     /* may be one of the operands */
    uint64_t here;       /* uint8_t[segments]: operands of each that have arrived */
    uint32_t size;       /* bytes of the target, and of each operand */
    uint32_t segments;
    uint32_t count;      /* operands, at most MAX_OPERANDS */
    uint32_t divide_by;
    uint32_t generation; /* changes each time that the row is given to a sum; 0: it is free */
    uint32_t reserved;
    uint64_t operands[MAX_OPERANDS]; /* addresses; read unaligned */
};

/* The sum of a transfer; 0 where the row is NONE, free, or by now another sum's. */
struct sum *dlcpd_sum_of(const struct table *table, const struct transfer *transfer);

/* Take in segment `segment` of a transfer, `size` bytes for `offset`. 0 where it is refused, with
 * nothing written: the transfer's sum, operand or segment does not exist, or all operands of the
 * segment have arrived. */
int32_t dlcpd_add(const struct table *table, const struct transfer *transfer, uint32_t segment,
                  uint64_t offset, const uint8_t *data, uint32_t size);

/* --- receiving: receive.c --- */

/* Consecutive datagrams that agree in all but segment, flags, drop precedence, number and
 * time. */
struct group {
    uint64_t token;
    uint32_t operation;
    uint16_t stream, transfer;
    uint16_t segment; /* of the first */
    uint8_t path, round, tag, first_flags;
    uint8_t flags;    /* of all, or-ed */
    uint8_t last_flags;
    uint32_t count;
    uint32_t bytes;
    uint32_t number, sent_at; /* of the first */
    uint32_t newest;  /* number of the last */
    uint32_t marked;  /* Congestion Experienced */
    int64_t arrived;  /* the first, ns since 1970 */
    int32_t row;      /* of its transfer; NONE: not placed yet, see dlcpd_place */
    uint32_t begin;   /* then its datagrams are `waiting[begin .. begin + count]` */
    uint32_t fresh, duplicate, odd; /* see core.wire.datagram.Placed */
    uint32_t missing; /* of the transfer, with this group */
};

struct datagram { /* in the ring's data */
    uint32_t at, length;
};

struct stray { /* control, for Python to read */
    uint32_t at, length;
    int64_t arrived;
};

struct ring {
    uint64_t data;     /* `messages` places of `spacing` bytes */
    uint64_t messages; /* struct mmsghdr[message_count], which point into `data` and `control` */
    uint64_t table;    /* struct table */
    uint64_t keys;     /* struct key[key_mask + 1], found by linear probing; 0: no checks */
    uint64_t groups, waiting, strays; /* out */
    uint32_t message_count, spacing, group_max, waiting_max, stray_max;
    uint32_t budget;   /* bytes after which dlcpd_receive returns */
    uint32_t longest;  /* bytes of the longest dlcpd datagram */
    uint32_t loss;     /* datagrams discarded at random, of 2**32: for tests */
    uint32_t corrupt;  /* likewise: one of their bits is flipped */
    uint32_t key_mask;
    uint64_t random;   /* state of both, not 0 */
    int32_t fd;
    /* out */
    int32_t error;     /* errno, or 0 */
    uint32_t group_count, waiting_count, stray_count;
    uint32_t calls, filled, datagrams, bytes;
    uint32_t drained;  /* nothing waits any more */
    uint32_t lost, corrupted;
    uint32_t rejects[REJECTS];
    int64_t wall, now; /* CLOCK_REALTIME and CLOCK_MONOTONIC after the last call, ns */
};

/* Receive, check, group and place, until the budget is used, nothing waits, or Python is needed:
 * for control, or for a transfer that is not open. */
void dlcpd_receive(struct ring *ring);

/* The same for `count` messages that are in the ring. */
void dlcpd_digest(struct ring *ring, uint32_t count);

/* Place the waiting datagrams of a group whose transfer has been opened as `row`; none, where the
 * row is another transfer's. */
void dlcpd_place(struct ring *ring, uint32_t group, int32_t row);

/* --- sending: send.c --- */

struct batch {
    struct header first; /* of the first datagram; segment, tag and flags 0 */
    uint64_t payload, payload_size;
    uint64_t segments;   /* int64_t[count] */
    uint64_t tags;       /* uint8_t[count] */
    uint64_t flags;      /* uint8_t[count] */
    uint64_t name;       /* sockaddr */
    uint64_t secret;     /* struct secret; 0: checksums are 0 */
    uint64_t controls;   /* by tag, `control_spacing` bytes each: control messages */
    uint32_t name_size, control_size, control_spacing;
    uint32_t segment_size, count;
    uint32_t run;        /* datagrams of a message at most: 1 without GSO */
    int32_t fd;
    uint32_t done;       /* in and out: datagrams sent so far */
    uint32_t calls;      /* out */
    int32_t error;       /* out: errno, 0 when all are sent */
};

/* Send datagrams [done, count) up to the first error; EFAULT for a payload or tag out of range. */
void dlcpd_send(struct batch *batch);

/* End of the message that begins with datagram `row`: of one tag, at most `run` datagrams. */
uint32_t dlcpd_message_end(const struct batch *batch, uint32_t row);

/* Headers of datagrams [row, end). */
void dlcpd_headers(const struct batch *batch, uint32_t row, uint32_t end, struct header *out);

/* Sizes of the structs, for Python to compare with its own. */
void dlcpd_sizes(uint32_t out[11]);

#endif
