/* Float32 parts of a sum, added up as they come. */
#include "datapath.h"

#include <string.h>

enum { BLOCK = 256 }; /* elements of the sum that a first-level cache holds beside its operands */

/* Parts of tensors need not be aligned, and what was received is not. */
typedef float __attribute__((aligned(1), may_alias)) number;

static void divide(float *sum, uint32_t count, uint32_t by)
{
    for (uint32_t i = 0; by != 1 && i < count; i++)
        sum[i] /= (float)by;
}

/* out[i] = ((p[0][i] + p[1][i]) + p[2][i]) ...; `out` may be any of them. */
static void add_up(number *out, const number *const *parts, uint32_t operands, uint32_t count,
                   uint32_t divide_by)
{
    float sum[BLOCK];
    for (uint32_t begin = 0; begin < count; begin += BLOCK) {
        uint32_t size = count - begin < BLOCK ? count - begin : BLOCK;
        memcpy(sum, parts[0] + begin, size * sizeof *sum);
        for (uint32_t operand = 1; operand < operands; operand++) {
            const number *part = parts[operand] + begin;
            for (uint32_t i = 0; i < size; i++)
                sum[i] += part[i];
        }
        divide(sum, size, divide_by);
        memcpy(out + begin, sum, size * sizeof *sum);
    }
}

/* The usual case, without a detour. Where `out` is one of the two, it is so element by element. */
static void add_two(number *out, const number *a, const number *b, uint32_t count)
{
#pragma GCC ivdep
    for (uint32_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

void dlcpd_add(struct sum *sum, uint32_t number_of, uint32_t segment, uint64_t offset,
               const uint8_t *data, uint32_t size)
{
    const uint64_t *operands = (const uint64_t *)(uintptr_t)sum->operands;
    uint8_t *here = (uint8_t *)(uintptr_t)sum->here + segment;
    if (++*here < sum->count) {
        memcpy((uint8_t *)(uintptr_t)operands[number_of] + offset, data, size);
        return;
    }
    const number *parts[MAX_OPERANDS];
    for (uint32_t i = 0; i < sum->count; i++)
        parts[i] = (const number *)(uintptr_t)(operands[i] + offset);
    parts[number_of] = (const number *)data;
    number *out = (number *)(uintptr_t)(sum->target + offset);
    if (sum->count == 2 && sum->divide_by == 1)
        add_two(out, parts[0], parts[1], size / 4);
    else
        add_up(out, parts, sum->count, size / 4, sum->divide_by);
}
