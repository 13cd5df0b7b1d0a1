/* Adds up float32 operands of a sum, segment by segment, as they come. */
#include "datapath.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 256 }; /* elements of the sum that a first-level cache holds beside its operands */

/* Parts of tensors need not be aligned, and received data are not. */
typedef float __attribute__((aligned(1), may_alias)) number;

/* 0 for a finite number, and for all others the bits of NaN. */
static inline uint32_t beyond(float number)
{
    uint32_t bits;
    number -= number;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* Returns whether all quotients are finite. */
static int divide(float *sum, uint32_t count, uint32_t by)
{
    float inverse = 1 / (float)by;
    uint32_t found = 0;
    if (by & (by - 1)) {
        for (uint32_t i = 0; i < count; i++)
            found |= beyond(sum[i] /= (float)by);
    } else { /* the inverse of a power of two is exact: the same bits, faster */
        for (uint32_t i = 0; i < count; i++)
            found |= beyond(sum[i] *= inverse);
    }
    return !found;
}

/* An average may overflow only if it is out of range itself: repeat the sum with operands scaled
   down by a power of two. Bit-identical to numerics/reduce.py. */
static void avoid_overflow(float *sum, const number *const *parts, uint32_t begin,
                           uint32_t operands, uint32_t size, uint32_t by)
{
    float down = 1;
    for (uint32_t left = operands; left; left >>= 1)
        down /= 2;
    for (uint32_t i = 0; i < size; i++) {
        float again = 0;
        int finite = 1;
        for (uint32_t operand = 0; operand < operands; operand++) {
            float part = parts[operand][begin + i];
            finite &= isfinite(part) != 0;
            again += part * down;
        }
        again /= (float)by * down;
        if (finite && !isfinite(sum[i]))
            sum[i] = again > FLT_MAX ? FLT_MAX : again < -FLT_MAX ? -FLT_MAX : again;
    }
}

/* out[i] = ((p[0][i] + p[1][i]) + p[2][i]) ...; `out` may be any of them. */
static void add_up(number *out, const number *const *parts, uint32_t operands, uint32_t count,
                   uint32_t divide_by)
{
    float sum[BLOCK];
    for (uint32_t begin = 0; begin < count; begin += BLOCK) {
        uint32_t size = count - begin < BLOCK ? count - begin : BLOCK;
        if (operands == 1)
            memcpy(sum, parts[0] + begin, size * sizeof *sum);
        for (uint32_t i = 0; operands > 1 && i < size; i++)
            sum[i] = parts[0][begin + i] + parts[1][begin + i];
        for (uint32_t operand = 2; operand < operands; operand++) {
            const number *part = parts[operand] + begin;
            for (uint32_t i = 0; i < size; i++)
                sum[i] += part[i];
        }
        if (divide_by != 1 && !divide(sum, size, divide_by))
            avoid_overflow(sum, parts, begin, operands, size, divide_by);
        memcpy(out + begin, sum, size * sizeof *sum);
    }
}

/* The usual case, directly. `out` may be one of the two, which then overlap element by element. */
static void add_two(number *out, const number *a, const number *b, uint32_t count)
{
#pragma GCC ivdep
    for (uint32_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

struct sum *dlcpd_sum_of(const struct table *table, const struct transfer *t)
{
    if ((uint32_t)t->sum >= table->sum_count)
        return 0;
    struct sum *sum = (struct sum *)(uintptr_t)table->sums + t->sum;
    return sum->generation && sum->generation == t->generation ? sum : 0;
}

int32_t dlcpd_add(const struct table *table, const struct transfer *t, uint32_t segment,
                  uint64_t offset, const uint8_t *data, uint32_t size)
{
    const struct sum *sum = dlcpd_sum_of(table, t);
    if (!sum || sum->count > MAX_OPERANDS || t->operand >= sum->count ||
        segment >= sum->segments || offset > sum->size || size > sum->size - offset)
        return 0;
    uint8_t *here = (uint8_t *)(uintptr_t)sum->here + segment;
    if (*here >= sum->count)
        return 0;
    if (++*here < sum->count) {
        memcpy((uint8_t *)(uintptr_t)sum->operands[t->operand] + offset, data, size);
        return 1;
    }
    const number *parts[MAX_OPERANDS];
    for (uint32_t i = 0; i < sum->count; i++)
        parts[i] = (const number *)(uintptr_t)(sum->operands[i] + offset);
    parts[t->operand] = (const number *)data;
    number *out = (number *)(uintptr_t)(sum->target + offset);
    if (sum->count == 2 && sum->divide_by == 1)
        add_two(out, parts[0], parts[1], size / 4);
    else
        add_up(out, parts, sum->count, size / 4, sum->divide_by);
    return 1;
}
