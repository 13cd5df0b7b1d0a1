/* Sends segments of one transfer: makes headers, and messages for GSO. */
#define _GNU_SOURCE
#include "datapath.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { MESSAGES = 8, RUN = 64 }; /* of a system call; all its data fit a first-level cache */

uint32_t dlcpd_message_end(const struct batch *b, uint32_t row)
{
    const uint8_t *tags = (const uint8_t *)(uintptr_t)b->tags;
    uint32_t limit = b->run < RUN ? b->run : RUN, end = row + 1;
    if (row >= b->count)
        return b->count;
    if (limit > b->count - row)
        limit = b->count - row;
    while (end - row < limit && tags[end] == tags[row])
        end++;
    return end;
}

void dlcpd_headers(const struct batch *b, uint32_t row, uint32_t end, struct header *out)
{
    const int64_t *segments = (const int64_t *)(uintptr_t)b->segments;
    const uint8_t *tags = (const uint8_t *)(uintptr_t)b->tags;
    const uint8_t *flags = (const uint8_t *)(uintptr_t)b->flags;
    for (; row < end; row++, out++) {
        *out = b->first;
        out->flags = flags[row];
        out->segment = (uint16_t)segments[row];
        out->tag = tags[row];
        out->number = b->first.number + row;
        if (row >= STAMPED)
            out->sent_at = 0;
        out->checksum = 0;
    }
}

/* Whether datagrams [row, end), which are of one tag, have a control message and a payload within
 * the batch: no other memory is sent or hashed. */
static int is_ours(const struct batch *b, uint32_t row, uint32_t end)
{
    const int64_t *segments = (const int64_t *)(uintptr_t)b->segments;
    const uint8_t *tags = (const uint8_t *)(uintptr_t)b->tags;
    if (tags[row] >= MAX_TAGS || b->segment_size > MAX_SEGMENT)
        return 0;
    for (; row < end; row++)
        if ((uint64_t)segments[row] >= MAX_SEGMENTS ||
            (uint64_t)segments[row] * b->segment_size > b->payload_size)
            return 0;
    return 1;
}

/* Returns how many messages are ready; 0, where the first may not be sent. */
static uint32_t fill(const struct batch *b, uint32_t row, struct mmsghdr *messages,
                     struct iovec *iov, struct header *headers, uint32_t *ends)
{
    const int64_t *segments = (const int64_t *)(uintptr_t)b->segments;
    const uint8_t *tags = (const uint8_t *)(uintptr_t)b->tags;
    uint32_t count = 0;
    for (; count < MESSAGES && row < b->count; count++) {
        uint32_t end = dlcpd_message_end(b, row);
        struct msghdr *m = &messages[count].msg_hdr;
        if (!is_ours(b, row, end))
            break;
        memset(messages + count, 0, sizeof *messages);
        m->msg_name = (void *)(uintptr_t)b->name;
        m->msg_namelen = b->name_size;
        m->msg_iov = iov;
        m->msg_iovlen = 2 * (size_t)(end - row);
        m->msg_control = (void *)(uintptr_t)(b->controls + (uint64_t)tags[row] * b->control_spacing);
        m->msg_controllen = b->control_size;
        dlcpd_headers(b, row, end, headers);
        for (; row < end; row++, headers++, iov += 2) {
            uint64_t at = (uint64_t)segments[row] * b->segment_size, rest = b->payload_size - at;
            iov[0] = (struct iovec){headers, HEADER};
            iov[1].iov_base = (void *)(uintptr_t)(b->payload + at);
            iov[1].iov_len = rest < b->segment_size ? rest : b->segment_size;
            if (b->secret)
                headers->checksum = dlcpd_checksum(headers, iov[1].iov_base, (uint32_t)iov[1].iov_len,
                                                   (const struct secret *)(uintptr_t)b->secret);
        }
        ends[count] = end;
    }
    return count;
}

void dlcpd_send(struct batch *b)
{
    struct mmsghdr messages[MESSAGES];
    struct iovec iov[MESSAGES * RUN * 2];
    struct header headers[MESSAGES * RUN];
    uint32_t ends[MESSAGES];
    b->error = 0;
    b->calls = 0;
    while (b->done < b->count) {
        uint32_t count = fill(b, b->done, messages, iov, headers, ends);
        if (!count) {
            b->error = EFAULT;
            return;
        }
        int sent = sendmmsg(b->fd, messages, count, MSG_DONTWAIT);
        b->calls++;
        if (sent < 0) {
            b->error = errno;
            return;
        }
        b->done = ends[sent - 1];
    }
}

void dlcpd_sizes(uint32_t out[11])
{
    const uint32_t sizes[11] = {
        sizeof(struct header), sizeof(struct transfer), sizeof(struct table),
        sizeof(struct group), sizeof(struct datagram), sizeof(struct stray),
        sizeof(struct ring), sizeof(struct batch), sizeof(struct sum), sizeof(struct secret),
        sizeof(struct key),
    };
    memcpy(out, sizes, sizeof sizes);
}
