/* Transfers that are open here, found by what a header says: chained hashing over rows. */
#include "datapath.h"

#include <string.h>

static struct transfer *rows_of(const struct table *table)
{
    return (struct transfer *)(uintptr_t)table->rows;
}

static int32_t *bucket_of(const struct table *table, uint64_t token, uint32_t operation,
                          uint16_t stream, uint16_t transfer)
{
    uint64_t mixed = token ^ ((uint64_t)operation << 32 | (uint64_t)stream << 16 | transfer);
    mixed *= 0x9E3779B97F4A7C15u; /* Fibonacci hashing: the upper bits are well mixed */
    return (int32_t *)(uintptr_t)table->buckets + ((mixed >> 32) & table->mask);
}

int32_t dlcpd_open(struct table *table, const struct transfer *wanted)
{
    int32_t row = table->free;
    if (row == NONE)
        return NONE;
    struct transfer *rows = rows_of(table);
    int32_t *bucket =
        bucket_of(table, wanted->token, wanted->operation, wanted->stream, wanted->transfer);
    table->free = rows[row].next;
    rows[row] = *wanted;
    rows[row].next = *bucket;
    *bucket = row;
    return row;
}

void dlcpd_close(struct table *table, int32_t row)
{
    struct transfer *rows = rows_of(table), *gone = rows + row;
    int32_t *link =
        bucket_of(table, gone->token, gone->operation, gone->stream, gone->transfer);
    while (*link != NONE && *link != row)
        link = &rows[*link].next;
    if (*link == NONE)
        return; /* it is not open */
    *link = gone->next;
    memset(gone, 0, sizeof *gone);
    gone->next = table->free;
    table->free = row;
}

int32_t dlcpd_find(const struct table *table, const struct header *h)
{
    const struct transfer *rows = rows_of(table);
    int32_t row = *bucket_of(table, h->token, h->operation, h->stream, h->transfer);
    while (row != NONE) {
        const struct transfer *t = rows + row;
        if (t->token == h->token && t->operation == h->operation && t->stream == h->stream &&
            t->transfer == h->transfer)
            return row;
        row = t->next;
    }
    return NONE;
}
