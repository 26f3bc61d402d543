// The same streams in C, with OpenMP and non-temporal stores: what benchmarks/ceiling.py holds the host kernels against.
// gcc -O3 -march=native -fopenmp -shared -fPIC. Arrays begin on 64-byte boundaries; n is a multiple of 16 × threads.

#include <omp.h>
#include <stddef.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define VECTOR_BYTES 64
#define STREAM(to, vector) _mm512_stream_ps((float *)(to), (__m512)(vector))
#define FENCE() _mm_sfence()
#elif defined(__AVX__)
#include <immintrin.h>
#define VECTOR_BYTES 32
#define STREAM(to, vector) _mm256_stream_ps((float *)(to), (__m256)(vector))
#define FENCE() _mm_sfence()
#else  // no non-temporal store that C can name: an ordinary one, and ceiling.py says so
#define ORDINARY_STORES 1
#define VECTOR_BYTES 16
#define STREAM(to, vector) (*(to) = (vector))
#define FENCE()
#endif

#define LANES (VECTOR_BYTES / 4)
#define PER_LINE (64 / VECTOR_BYTES)
typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));

int has_nontemporal_stores(void) {
#if defined(ORDINARY_STORES)
    return 0;
#else
    return 1;
#endif
}

// Each thread has one contiguous part of whole 64-byte lines.
#define FOR_EACH_VECTOR(body)                                                                                  \
    _Pragma("omp parallel") {                                                                                  \
        size_t lines = n / 16, part = omp_get_thread_num(), parts = omp_get_num_threads();                     \
        for (size_t i = lines * part / parts * PER_LINE; i < lines * (part + 1) / parts * PER_LINE; ++i) body; \
        FENCE();                                                                                               \
    }

void set_threads(int threads) { omp_set_num_threads(threads); }

void c_write(Vector *a, float value, size_t n) {
    Vector filled = value - (Vector){};
    FOR_EACH_VECTOR(STREAM(a + i, filled))
}
void c_copy(Vector *a, const Vector *b, size_t n) { FOR_EACH_VECTOR(STREAM(a + i, b[i])) }
void c_scale(Vector *a, const Vector *b, float scalar, size_t n) { FOR_EACH_VECTOR(STREAM(a + i, scalar * b[i])) }
void c_add(Vector *a, const Vector *b, const Vector *c, size_t n) { FOR_EACH_VECTOR(STREAM(a + i, b[i] + c[i])) }
void c_triad(Vector *a, const Vector *b, const Vector *c, float scalar, size_t n) {
    FOR_EACH_VECTOR(STREAM(a + i, b[i] + scalar * c[i]))
}

float c_sum(const Vector *x, size_t n) {
    float all = 0;
#pragma omp parallel reduction(+ : all)
    {
        size_t blocks = n / LANES / 8, part = omp_get_thread_num(), parts = omp_get_num_threads();
        Vector sums[8] = {};
        for (size_t i = blocks * part / parts; i < blocks * (part + 1) / parts; ++i)
#pragma GCC unroll 8
            for (int k = 0; k < 8; ++k) sums[k] += x[8 * i + k];
        for (int k = 1; k < 8; ++k) sums[0] += sums[k];
        for (int lane = 0; lane < LANES; ++lane) all += sums[0][lane];
    }
    return all;
}
