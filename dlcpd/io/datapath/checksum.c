/* Checksums of data: NH of the bytes, then SipHash of its value, which would reveal NH's key.
 *
 * core/wire/checksum.py defines them, core/wire/nh.py names the source of NH. SipHash-2-4:
 * Aumasson and Bernstein, "SipHash: a fast short-input PRF" (INDOCRYPT 2012).
 */
#include "datapath.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAVE_AVX2 1
#endif

static uint64_t product(uint64_t word, const uint32_t *key)
{
    uint32_t low = (uint32_t)word + key[0], high = (uint32_t)(word >> 32) + key[1];
    return (uint64_t)low * high;
}

static uint64_t by_words(const uint8_t *data, uint64_t size, const uint32_t *key)
{
    uint64_t sum = 0, word;
    for (; size >= sizeof word; size -= sizeof word, data += sizeof word, key += 2) {
        memcpy(&word, data, sizeof word);
        sum += product(word, key);
    }
    if (size) {
        word = 0;
        memcpy(&word, data, size);
        sum += product(word, key);
    }
    return sum;
}

#ifdef HAVE_AVX2
/* Four words at a time, in two sums: each addition to a single sum would wait for the last. */
__attribute__((target("avx2"))) static uint64_t by_vectors(const uint8_t *data, uint64_t size,
                                                           const uint32_t *key)
{
    enum { VECTOR = sizeof(__m256i), PAIR = 2 * VECTOR };
    __m256i first = _mm256_setzero_si256(), second = first;
    uint64_t sums[4];
    for (; size >= PAIR; size -= PAIR, data += PAIR, key += PAIR / sizeof *key) {
        const uint8_t *other = (const uint8_t *)key;
        __m256i a = _mm256_add_epi32(_mm256_loadu_si256((const __m256i *)data),
                                     _mm256_loadu_si256((const __m256i *)other));
        __m256i b = _mm256_add_epi32(_mm256_loadu_si256((const __m256i *)(data + VECTOR)),
                                     _mm256_loadu_si256((const __m256i *)(other + VECTOR)));
        first = _mm256_add_epi64(first, _mm256_mul_epu32(a, _mm256_srli_epi64(a, 32)));
        second = _mm256_add_epi64(second, _mm256_mul_epu32(b, _mm256_srli_epi64(b, 32)));
    }
    _mm256_storeu_si256((__m256i *)sums, _mm256_add_epi64(first, second));
    return sums[0] + sums[1] + sums[2] + sums[3] + by_words(data, size, key);
}
#endif

uint64_t dlcpd_nh(const uint8_t *data, uint64_t size, const uint32_t *key)
{
#ifdef HAVE_AVX2
    if (__builtin_cpu_supports("avx2"))
        return by_vectors(data, size, key);
#endif
    return by_words(data, size, key);
}

void dlcpd_nh_rows(const uint8_t *data, uint64_t count, uint64_t stride, uint64_t size,
                   const uint32_t *key, uint64_t *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = dlcpd_nh(data + i * stride, size, key);
}

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static void sip_rounds(uint64_t v[4], int rounds)
{
    for (; rounds; rounds--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

/* SipHash-2-4 of 15 bytes; the top byte of `last` is 15 already. */
static uint64_t siphash(const uint64_t key[2], uint64_t first, uint64_t last)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    v[3] ^= first;
    sip_rounds(v, 2);
    v[0] ^= first;
    v[3] ^= last;
    sip_rounds(v, 2);
    v[0] ^= last;
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t dlcpd_checksum(const struct header *header, const uint8_t *payload, uint32_t size,
                        const struct secret *secret)
{
    const uint8_t *head = (const uint8_t *)header;
    uint64_t hash = dlcpd_nh(head, SEALED, secret->nh) +
                    dlcpd_nh(payload, size, secret->nh + SEALED / 4);
    uint64_t about = header->number | (uint64_t)(size & 0xffff) << 32 |
                     (uint64_t)header->path << 48 | (uint64_t)15 << 56;
    return siphash(secret->prf, hash, about);
}
