// What the measuring itself needs on the device: bandwidth probes, random data, a kernel that blocks a stream, clocks.
//
// Probes move 16 bytes at a time, in any grid. They are fastest in one in which no thread has a second turn: that ends
// evenly, since multiprocessors that are ahead take the next blocks. Then a thread has one vector of each array, and of
// probe_read four, so that enough requests are in flight to fill the memory (docs/gpu.md, Probes, has figures).
// Traffic of each, for n vectors of 16 bytes an array:
//
//   probe_read    reads  16 n                 writes nothing (the store is never taken, which only we know)
//   probe_write                               writes 16 n
//   probe_copy    reads  16 n                 writes 16 n
//   probe_add     reads  32 n                 writes 16 n
//
// Reference: each output equals its input (copy), the bitwise sum of its inputs (add), or the index pattern (write).
// fill_cache touches 16 n bytes, of which the share that is asked for is written and the rest read.
// Grids are one-dimensional; any n including 0; indices are 64-bit. Also builds under HIP, where clocks differ.

#if defined(__HIPCC__) || defined(__HIPCC_RTC__) || defined(__HIP_PLATFORM_AMD__)
#define ON_HIP 1
#else
#define ON_HIP 0
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

struct __align__(16) Vector {
    u32 a, b, c, d;
};

// Nanoseconds of a clock that all multiprocessors share.
__device__ __forceinline__ u64 nanoseconds() {
#if ON_HIP
    return wall_clock64() * 10;  // 100 MHz on every GPU that ROCm 6 and 7 support
#else
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#endif
}

__device__ __forceinline__ long long first_index() {
    return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ long long stride() {
    return (long long)gridDim.x * blockDim.x;
}

// Bits that differ from place to place and run to run, so that no memory could store them as one pattern.
__device__ __forceinline__ Vector pattern(long long i, u32 seed) {
    const u32 bits = (u32)i * 2654435761u + seed;  // Knuth's multiplicative hash
    return Vector{bits, bits ^ 0x9e3779b9u, bits * 3u, bits * 5u};
}

__device__ __forceinline__ u32 folded(Vector v) {
    return v.a ^ v.b ^ v.c ^ v.d;
}

__device__ __forceinline__ Vector plus(Vector x, Vector y) {
    return Vector{x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d};
}

// The store keeps the loads alive. `never` is a value that the caller does not expect; if it should come up, the
// store goes to memory of ours and does no harm.
extern "C" __global__ void probe_read(const Vector* __restrict__ x, u32* sink, u32 never, long long n) {
    u32 sum = 0;
    long long i = first_index();
    const long long step = stride();
    for (; i + 3 * step < n; i += 4 * step) {
        const Vector v0 = x[i], v1 = x[i + step], v2 = x[i + 2 * step], v3 = x[i + 3 * step];
        sum ^= folded(v0) ^ folded(v1) ^ folded(v2) ^ folded(v3);
    }
    for (; i < n; i += step) sum ^= folded(x[i]);
    if (sum == never) *sink = sum;
}

extern "C" __global__ void probe_write(Vector* __restrict__ out, u32 seed, long long n) {
    const long long step = stride();
    for (long long i = first_index(); i < n; i += step) out[i] = pattern(i, seed);
}

extern "C" __global__ void probe_copy(const Vector* __restrict__ x, Vector* __restrict__ out, long long n) {
    const long long step = stride();
    for (long long i = first_index(); i < n; i += step) out[i] = x[i];
}

extern "C" __global__ void probe_add(
    const Vector* __restrict__ x, const Vector* __restrict__ y, Vector* __restrict__ out, long long n) {
    const long long step = stride();
    for (long long i = first_index(); i < n; i += step) out[i] = plus(x[i], y[i]);
}

// Fills a cache with other data, as work leaves it that writes `dirty_of_64` of the 64 lines it touches and reads the
// others. They alternate evenly, so that any part of the cache holds the same mix. With lines of 128 bytes (or of
// fewer: then two neighbours are alike) each is either wholly dirty or clean.
extern "C" __global__ void fill_cache(Vector* x, u32* sink, u32 never, u32 seed, u32 dirty_of_64, long long n) {
    u32 sum = 0;
    const long long step = stride();
    for (long long i = first_index(); i < n; i += step) {
        const u32 line = (u32)(i / 8);
        if (line * dirty_of_64 % 64u < dirty_of_64)
            x[i] = pattern(i, seed);
        else
            sum ^= folded(x[i]);
    }
    if (sum == never) *sink = sum;
}

// Random 64-bit words, then shaped: out = (bits & keep) | set. With masks that fix the exponents, every word holds
// finite floating-point numbers whose mantissas are random.
// splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; it is a bijection of
// the counter, so words do not repeat.
extern "C" __global__ void random_words(u64* __restrict__ out, u64 seed, u64 keep, u64 set, long long n) {
    const long long step = stride();
    for (long long i = first_index(); i < n; i += step) {
        u64 z = seed + ((u64)i + 1) * 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        out[i] = ((z ^ (z >> 31)) & keep) | set;
    }
}

// Adds up 64-bit words, each mixed with its place: of m[i] = splitmix64's mixing of x[i] + (i + 1) * its step, a block
// adds the m[i] to sums[block][0] and the (2 i + 1) m[i] to sums[block][1]. Reads 8 n bytes once; sums: zeroed.
__device__ __forceinline__ u64 mixed_word(u64 word, long long i) {
    u64 z = word + ((u64)i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

extern "C" __global__ void sum_words(const u64* __restrict__ x, u64* sums, long long n) {
    u64 plain = 0, placed = 0;
    long long i = first_index();
    const long long step = stride();
    for (; i + 3 * step < n; i += 4 * step) {
        const u64 words[4] = {x[i], x[i + step], x[i + 2 * step], x[i + 3 * step]};
        for (int k = 0; k < 4; ++k) {
            const u64 m = mixed_word(words[k], i + k * step);
            plain += m;
            placed += (2 * (u64)(i + k * step) + 1) * m;
        }
    }
    for (; i < n; i += step) {
        const u64 m = mixed_word(x[i], i);
        plain += m;
        placed += (2 * (u64)i + 1) * m;
    }
    atomicAdd(&sums[2 * blockIdx.x], plain);
    atomicAdd(&sums[2 * blockIdx.x + 1], placed);
}

// Keeps a stream back until the host's flag reaches the ticket, so that what is queued behind starts without waiting
// for further launches. Gives up after `nanoseconds_allowed` and says so: a caller that synchronises would otherwise
// wait for us while we wait for it. Flags are in pinned host memory. One thread.
extern "C" __global__ void blocking_kernel(
    const volatile int* released, volatile int* gave_up, int ticket, u64 nanoseconds_allowed) {
    const u64 start = nanoseconds();
    while (*released < ticket) {
        if (nanoseconds() - start > nanoseconds_allowed) {
            *gave_up = ticket;
            __threadfence_system();
            return;
        }
    }
}

// Each multiprocessor's cycle counter beside the common clock: two such stamps give its real clock rate. One thread a
// block; blocks that find their multiprocessor stamped already leave it. slots: zeroed, (count, 2).
extern "C" __global__ void stamp_clocks(u64* slots, u32 count) {
#if !ON_HIP
    u32 sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (sm >= count) return;
    const u64 now = nanoseconds();
    const u64 cycles = (u64)clock64();
    if (atomicCAS(&slots[2 * sm], 0ull, now) == 0ull) slots[2 * sm + 1] = cycles;
#endif
}

// The smallest step that the common clock was seen to make, in nanoseconds: it may tick once a microsecond or rarer.
extern "C" __global__ void clock_step(u64* smallest, int changes) {
    u64 least = ~0ull, before = nanoseconds();
    for (int turn = 0, seen = 0; seen < changes && turn < (1 << 20); ++turn) {
        const u64 now = nanoseconds();
        if (now == before) continue;
        if (now - before < least) least = now - before;
        before = now;
        ++seen;
    }
    *smallest = least;
}
