/* Open transfers, found by the fields of a header: chained hashing over rows. */
#include "datapath.h"

#include <string.h>

static struct transfer *row_of(const struct table *table, int32_t row)
{
    if ((uint32_t)row >= table->size) /* NONE is no row, either */
        return 0;
    return (struct transfer *)(uintptr_t)table->rows + row;
}

static int32_t *bucket_of(const struct table *table, uint64_t token, uint32_t operation,
                          uint16_t stream, uint16_t transfer)
{
    uint64_t mixed = token ^ ((uint64_t)operation << 32 | (uint64_t)stream << 16 | transfer);
    mixed *= 0x9E3779B97F4A7C15u; /* Fibonacci hashing: the upper bits are well mixed */
    return (int32_t *)(uintptr_t)table->buckets + ((mixed >> 32) & table->mask);
}

static int32_t *bucket_of_row(const struct table *table, const struct transfer *t)
{
    return bucket_of(table, t->token, t->operation, t->stream, t->transfer);
}

/* Whether the transfer has no sum, or is an operand of its sum, of the same segments. */
static int belongs_to_its_sum(const struct table *table, const struct transfer *t)
{
    if (t->sum == NONE)
        return 1;
    const struct sum *sum = dlcpd_sum_of(table, t);
    return sum && t->operand < sum->count && sum->operands[t->operand] == t->place &&
           sum->size == t->size && sum->segments == t->segments;
}

int32_t dlcpd_open(struct table *table, int32_t row)
{
    struct transfer *t = row_of(table, row);
    if (!t || t->open || !t->segments || t->segments > MAX_SEGMENTS ||
        (uint64_t)t->segments * t->segment_size < t->size || !belongs_to_its_sum(table, t))
        return 0;
    int32_t *bucket = bucket_of_row(table, t);
    t->next = *bucket;
    t->open = 1;
    *bucket = row;
    return 1;
}

int32_t dlcpd_close(struct table *table, int32_t row)
{
    struct transfer *gone = row_of(table, row), *t;
    if (!gone || !gone->open)
        return 0;
    int32_t *link = bucket_of_row(table, gone);
    while (*link != row && (t = row_of(table, *link)))
        link = &t->next;
    if (*link == row)
        *link = gone->next;
    memset(gone, 0, sizeof *gone);
    return 1;
}

int32_t dlcpd_find(const struct table *table, const struct header *h)
{
    int32_t row = *bucket_of(table, h->token, h->operation, h->stream, h->transfer);
    const struct transfer *t;
    for (; (t = row_of(table, row)); row = t->next)
        if (t->token == h->token && t->operation == h->operation && t->stream == h->stream &&
            t->transfer == h->transfer)
            return row;
    return NONE;
}
