// Linear layers on packed weights: what the formats share. Included by kernels.inl, once per
// instruction set; linear_words.inl holds f32 and bf16, linear_pairs.inl q8, and q4 where
// linear_bytes.inl does not. linear_signs.inl holds q8 beside coarser activations.
//
// One output of one row is, in every regime:
//   f32, bf16:  fma over the inputs in order, from 0
//   q8, q4:     per block of 32 an exact integer sum, then sum = fma(float(isum), ws * xs, sum)
// so the few-row paths, which read packed weights directly, and the many-row paths, which widen a
// slice of them first, give the same bits.

constexpr int kParts = kTile / kLanes;  // vectors that hold the outputs of a tile
constexpr size_t kFewWordRows = 8;      // up to here f32 and bf16 weights are read directly
constexpr size_t kRowBlock = 192;       // rows whose running sums are kept in scratch
constexpr size_t kSliceBlocks = 16;     // blocks of a widened slice: 16 KB of int16
constexpr size_t kSliceWords = 256;     // inputs of a widened slice: 16 KB of f32
constexpr size_t kPrefetchBytes = 2048;
constexpr float kTinyPeak = 1e-34f;  // up to here a block is zeros: kFinePeak / peak would overflow

STAPES_INLINE VF activate(VF x, Activation activation) {
    if (activation == Activation::gelu) return vf_gelu(x);
    return activation == Activation::silu ? vf_silu(x) : x;
}

// Sixteen finished sums of one row -> bias, activation, y. The last tile may hold fewer outputs.
STAPES_INLINE void finish(const LinearJob& job, size_t row, size_t tile, const VF* sums) {
    size_t first = tile * kTile;
    size_t valid = job.out - first < kTile ? job.out - first : kTile;
    float* y = job.y + row * job.y_stride + first;
    const float* bias = job.bias ? job.bias + first : nullptr;
    float padded_y[kTile], padded_bias[kTile];
    if (valid < kTile && bias) {
        memset(padded_bias, 0, sizeof padded_bias);
        memcpy(padded_bias, bias, valid * sizeof(float));
        bias = padded_bias;
    }
    float* target = valid < kTile ? padded_y : y;
    for (int p = 0; p < kParts; ++p) {
        VF sum = bias ? vf_add(sums[p], vf_load(bias + p * kLanes)) : sums[p];
        vf_store(target + p * kLanes, activate(sum, job.activation));
    }
    if (valid < kTile) memcpy(y, padded_y, valid * sizeof(float));
}

// Calls f.run<R>(first row) for `rows` rows in groups of N and a tail.
template <int R, class F>
STAPES_INLINE void run_tail(size_t rows, size_t row, const F& f) {
    if constexpr (R > 0) {
        if (rows == R)
            f.template run<R>(row);
        else
            run_tail<R - 1>(rows, row, f);
    }
}

template <int N, class F>
STAPES_INLINE void by_rows(size_t rows, const F& f) {
    size_t row = 0;
    for (; row + N <= rows; row += N) f.template run<N>(row);
    run_tail<N - 1>(rows - row, row, f);
}

// What a group of rows fetches while it passes the blocks of its tiles: what lies ahead in them, and,
// where several tiles go together, its share of the tiles that come next. The first group, which reads
// from memory, has no share: the others find its blocks in the caches and leave memory to wait for.
struct Fetch {
    size_t block, step;  // its share: blocks `block`, `block` + `step`, ... of the next tiles
    Fetch(size_t rows, size_t row, size_t group)
        : block(row ? row / group - 1 : size_t(-1)), step(ceil_div(rows, group) - 1) {}

    // At block b of T tiles, which stands at w; a tile has `stride` bytes.
    template <class Q, int T>
    __attribute__((always_inline)) void at(size_t b, const uint8_t* w, size_t stride) {
        for (int t = 0; t < T; ++t)
            for (size_t line = 0; line < Q::bytes; line += 64)
                prefetch(w + t * stride + kPrefetchBytes + line);
        if (T == 1 || b != block) return;
        for (int t = 0; t < T; ++t)
            for (size_t line = 0; line < Q::bytes; line += 64)
                prefetch_far(w + (T + t) * stride + line);
        block += step;
    }
};

template <class F>
STAPES_INLINE void by_panel(size_t rows, const F& f) {
    by_rows<kPanelRows>(rows, f);
}

#include "linear_words.inl"
#include "linear_pairs.inl"
#if defined(STAPES_BYTE_DOTS)
#include "linear_bytes.inl"
#include "linear_signs.inl"
#endif

// Up to how many rows the few-row path is the faster one.
STAPES_INLINE size_t few_rows(Format format) {
    if (format == Format::q8) return Q8::few_rows;
    return format == Format::q4 ? Q4::few_rows : kFewWordRows;
}

static void many_rows(const LinearJob& job, size_t tile, float* scratch) {
    for (size_t row = 0; row < job.rows; row += kRowBlock) {
        size_t rows = job.rows - row < kRowBlock ? job.rows - row : kRowBlock;
        memset(scratch, 0, rows * kTile * sizeof(float));
        switch (job.format) {
            case Format::f32: many_words<WordsF32>(job, tile, row, rows, scratch); break;
            case Format::bf16: many_words<WordsBf16>(job, tile, row, rows, scratch); break;
            case Format::q8: many_pairs<Q8>(job, tile, row, rows, scratch); break;
            case Format::q4: many_q4(job, tile, row, rows, scratch); break;
        }
        for (size_t r = 0; r < rows; ++r) {
            VF sums[kParts];
            for (int p = 0; p < kParts; ++p) sums[p] = vf_load(scratch + r * kTile + p * kLanes);
            finish(job, row + r, tile, sums);
        }
    }
}

static void linear_tiles(const LinearJob& job, size_t first, size_t last, float* scratch) {
#if defined(STAPES_AVX512)
    // Many rows of f32 and bf16 run at 85 GFLOP/s a core with two vectors of 8, and at 64 with one of
    // 16: every broadcast of an activation then serves two products.
    if (job.format == Format::f32 || job.format == Format::bf16)
        return avx2_kernels().linear_tiles(job, first, last, scratch);
#endif
#if defined(STAPES_BYTE_DOTS)
    if (job.format == Format::q8 && job.peak == kCoarsePeak) return signs_rows(job, first, last);
#endif
    if (job.rows > few_rows(job.format)) {
        for (size_t tile = first; tile < last; ++tile) many_rows(job, tile, scratch);
        return;
    }
    switch (job.format) {
        case Format::f32: few_words_rows<WordsF32>(job, first, last); break;
        case Format::bf16: few_words_rows<WordsBf16>(job, first, last); break;
        case Format::q8: few_pairs_rows<Q8>(job, first, last); break;
        case Format::q4: few_q4_rows(job, first, last); break;
    }
}

static void quantize_block(int highest, const float* x, const QuantizedRow& row, size_t block) {
    VF largest = vf_zero(), poison = vf_zero();
    for (int i = 0; i < kBlock; i += kLanes) {
        VF value = vf_load(x + i);
        largest = vf_max(vf_abs(value), largest);  // in this order a NaN is passed over
        poison = vf_fma(value, vf_zero(), poison);  // NaN as soon as one value is not finite
    }
    const float most = float(highest), peak = vf_hmax(largest);
    const VF inverse = vf_set1(peak > kTinyPeak ? most / peak : 0.0f);
    row.scales[block] = peak / most + vf_sum(poison);
    int16_t* words = row.words + block * kBlock;
#if defined(STAPES_BYTE_DOTS)
    if (highest == kCoarsePeak) {
        row.sums[block] = split_signs(x, inverse, reinterpret_cast<uint8_t*>(words));
        return;
    }
#endif
    int16_t values[kBlock];
    for (int i = 0; i < kBlock; i += kLanes)
        vf_store_i16(values + i, vf_round(vf_mul(vf_load(x + i), inverse)));
    for (int i = 0; i < kBlock; i += 4) {
        words[i] = values[i], words[i + 1] = values[i + 2];
        words[i + 2] = values[i + 1], words[i + 3] = values[i + 3];
    }
    if (highest != kBytePeak) return;
    int8_t* bytes = row.bytes + block * kBlock;
    int32_t sum = 0;
    for (int i = 0; i < kBlock; ++i) {
        bytes[i] = int8_t(values[i]);
        sum += values[i];
    }
    row.sums[block] = sum;
}

static void quantize_row(int peak, const float* x, size_t n, const QuantizedRow& row) {
    size_t k = 0;
    for (; k + kBlock <= n; k += kBlock) quantize_block(peak, x + k, row, k / kBlock);
    if (k == n) return;
    float tail[kBlock] = {0};
    memcpy(tail, x + k, (n - k) * sizeof(float));
    quantize_block(peak, tail, row, k / kBlock);
}
