// Linear layers on packed weights. Included by kernels.inl, once per instruction set.
//
// One output of one row is, in every regime:
//   f32, bf16:  fma over the inputs in order, from 0
//   q8:         per block of 32 an exact integer sum, then sum = fma(float(isum), ws * xs, sum)
// so the few-row and the many-row paths below give the same bits.

constexpr size_t kFewRows = 8;        // up to here the packed weights are read directly
constexpr size_t kRowBlock = 192;     // rows whose running sums are kept in scratch
constexpr size_t kSliceQ8 = 512;      // inputs of a widened slice: 16 KB of int16
constexpr size_t kSliceF32 = 256;     // 16 KB of f32
constexpr size_t kPrefetchBytes = 2048;

STAPES_INLINE VF activate(VF x, Activation activation) {
    return activation == Activation::gelu ? vf_gelu(x) : x;
}

// Sixteen finished sums of one row -> bias, activation, y. `valid` <= 16 outputs exist.
STAPES_INLINE void finish(const LinearJob& job, size_t row, size_t tile, VF a, VF b) {
    size_t first = tile * kTile;
    size_t valid = job.out - first < kTile ? job.out - first : kTile;
    float* y = job.y + row * job.y_stride + first;
    if (valid == kTile) {
        if (job.bias) {
            a = vf_add(a, vf_load(job.bias + first));
            b = vf_add(b, vf_load(job.bias + first + kLanes));
        }
        vf_store(y, activate(a, job.activation));
        vf_store(y + kLanes, activate(b, job.activation));
        return;
    }
    float sums[kTile], bias[kTile] = {0};
    if (job.bias) memcpy(bias, job.bias + first, valid * sizeof(float));
    if (job.bias) a = vf_add(a, vf_load(bias)), b = vf_add(b, vf_load(bias + kLanes));
    vf_store(sums, activate(a, job.activation));
    vf_store(sums + kLanes, activate(b, job.activation));
    memcpy(y, sums, valid * sizeof(float));
}

struct WordsF32 {
    static constexpr size_t bytes = 4;
    STAPES_INLINE VF load(const uint8_t* p) { return vf_load(reinterpret_cast<const float*>(p)); }
};
struct WordsBf16 {
    static constexpr size_t bytes = 2;
    STAPES_INLINE VF load(const uint8_t* p) {
        return vf_load_bf16(reinterpret_cast<const uint16_t*>(p));
    }
};

// R rows, T neighbouring tiles, straight from packed weights (f32, bf16).
template <class Words, int R, int T>
static void few_words(const LinearJob& job, size_t row, size_t tile) {
    const size_t stride = tile_bytes(job.format, job.in);
    const uint8_t* w = job.weights + tile * stride;
    const float* x = job.x + row * job.x_stride;
    VF sum[R][T][2];
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) sum[r][t][0] = sum[r][t][1] = vf_zero();
    for (size_t k = 0; k < job.in; ++k, w += kTile * Words::bytes) {
        for (int t = 0; t < T; ++t) {
            const uint8_t* p = w + t * stride;
            prefetch(p + kPrefetchBytes);
            VF w0 = Words::load(p), w1 = Words::load(p + kLanes * Words::bytes);
            for (int r = 0; r < R; ++r) {
                VF value = vf_set1(x[r * job.x_stride + k]);
                sum[r][t][0] = vf_fma(w0, value, sum[r][t][0]);
                sum[r][t][1] = vf_fma(w1, value, sum[r][t][1]);
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) finish(job, row + r, tile + t, sum[r][t][0], sum[r][t][1]);
}

// R rows, one tile, straight from packed weights (q8).
template <int R>
static void few_q8(const LinearJob& job, size_t row, size_t tile) {
    const size_t blocks = ceil_div(job.in, kBlock);
    const uint8_t* w = job.weights + tile * blocks * kQ8BlockBytes;
    const int16_t* xq = job.xq + row * job.xq_stride;
    const float* xs = job.xs + row * job.xs_stride;
    VF sum[R][2];
    for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = vf_zero();
    for (size_t b = 0; b < blocks; ++b, w += kQ8BlockBytes) {
        for (size_t line = 0; line < kQ8BlockBytes; line += 64) prefetch(w + kPrefetchBytes + line);
        VI isum[R][2];
        for (int r = 0; r < R; ++r) isum[r][0] = isum[r][1] = vi_zero();
        const int8_t* q = reinterpret_cast<const int8_t*>(w) + kTile * 2;
#pragma GCC unroll 8
        for (int quad = 0; quad < kBlock / 4; ++quad) {
            VI w0 = vi_load(q + quad * 4 * kTile), w1 = vi_load(q + quad * 4 * kTile + 4 * kLanes);
            VI even0 = vi_even_i8(w0), odd0 = vi_odd_i8(w0);
            VI even1 = vi_even_i8(w1), odd1 = vi_odd_i8(w1);
            for (int r = 0; r < R; ++r) {
                const int16_t* x = xq + r * job.xq_stride + b * kBlock + quad * 4;
                VI even = vi_set1_pair(x), odd = vi_set1_pair(x + 2);
                isum[r][0] = vi_madd(isum[r][0], even0, even);
                isum[r][1] = vi_madd(isum[r][1], even1, even);
                pin(isum[r][0]);
                pin(isum[r][1]);
                isum[r][0] = vi_madd(isum[r][0], odd0, odd);
                isum[r][1] = vi_madd(isum[r][1], odd1, odd);
                pin(isum[r][0]);
                pin(isum[r][1]);
            }
        }
        const uint16_t* scales = reinterpret_cast<const uint16_t*>(w);
        VF ws0 = vf_load_f16(scales), ws1 = vf_load_f16(scales + kLanes);
        for (int r = 0; r < R; ++r) {
            VF scale = vf_set1(xs[r * job.xs_stride + b]);
            sum[r][0] = vf_fma(vi_to_float(isum[r][0]), vf_mul(ws0, scale), sum[r][0]);
            sum[r][1] = vf_fma(vi_to_float(isum[r][1]), vf_mul(ws1, scale), sum[r][1]);
        }
    }
    for (int r = 0; r < R; ++r) finish(job, row + r, tile, sum[r][0], sum[r][1]);
}

static void few_q8_rows(const LinearJob& job, size_t first, size_t last) {
    for (size_t tile = first; tile < last; ++tile) {
        size_t row = 0;
        for (; row + 4 <= job.rows; row += 4) few_q8<4>(job, row, tile);
        switch (job.rows - row) {
            case 3: few_q8<3>(job, row, tile); break;
            case 2: few_q8<2>(job, row, tile); break;
            case 1: few_q8<1>(job, row, tile); break;
            default: break;
        }
    }
}

template <class Words>
static void few_words_rows(const LinearJob& job, size_t first, size_t last) {
    if (job.rows == 1) {
        size_t tile = first;
        for (; tile + 2 <= last; tile += 2) few_words<Words, 1, 2>(job, 0, tile);
        if (tile < last) few_words<Words, 1, 1>(job, 0, tile);
        return;
    }
    for (size_t tile = first; tile < last; ++tile) {
        size_t row = 0;
        for (; row + 4 <= job.rows; row += 4) few_words<Words, 4, 1>(job, row, tile);
        switch (job.rows - row) {
            case 3: few_words<Words, 3, 1>(job, row, tile); break;
            case 2: few_words<Words, 2, 1>(job, row, tile); break;
            case 1: few_words<Words, 1, 1>(job, row, tile); break;
            default: break;
        }
    }
}

// R rows by 16 outputs over a slice of f32 weights [n][16]; sums [R][16] are carried along.
template <int R>
static void panel_f32(const float* w, size_t n, const float* x, size_t x_stride, float* sums) {
    VF sum[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        sum[r][0] = vf_load(sums + r * kTile);
        sum[r][1] = vf_load(sums + r * kTile + kLanes);
    }
    for (size_t k = 0; k < n; ++k) {
        VF w0 = vf_load(w + k * kTile), w1 = vf_load(w + k * kTile + kLanes);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            VF value = vf_set1(x[r * x_stride + k]);
            sum[r][0] = vf_fma(w0, value, sum[r][0]);
            sum[r][1] = vf_fma(w1, value, sum[r][1]);
            pin(sum[r][0]);
            pin(sum[r][1]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        vf_store(sums + r * kTile, sum[r][0]);
        vf_store(sums + r * kTile + kLanes, sum[r][1]);
    }
}

// The same for q8: w [blocks][16 pairs][16 outputs][2] int16 and ws [blocks][16] f32, both widened.
template <int R>
static void panel_q8(const int16_t* w, const float* ws, size_t blocks, const int16_t* xq,
                     size_t xq_stride, const float* xs, size_t xs_stride, float* sums) {
    for (size_t b = 0; b < blocks; ++b, w += kBlock * kTile, xq += kBlock) {
        VI isum[R][2];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) isum[r][0] = isum[r][1] = vi_zero();
        for (int pair = 0; pair < kBlock / 2; ++pair) {
            VI w0 = vi_load(w + pair * 2 * kTile), w1 = vi_load(w + pair * 2 * kTile + 2 * kLanes);
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r) {
                VI value = vi_set1_pair(xq + r * xq_stride + pair * 2);
                isum[r][0] = vi_madd(isum[r][0], w0, value);
                isum[r][1] = vi_madd(isum[r][1], w1, value);
                pin(isum[r][0]);
                pin(isum[r][1]);
            }
        }
        VF ws0 = vf_load(ws + b * kTile), ws1 = vf_load(ws + b * kTile + kLanes);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            VF scale = vf_set1(xs[r * xs_stride + b]);
            float* s = sums + r * kTile;
            vf_store(s, vf_fma(vi_to_float(isum[r][0]), vf_mul(ws0, scale), vf_load(s)));
            vf_store(s + kLanes,
                     vf_fma(vi_to_float(isum[r][1]), vf_mul(ws1, scale), vf_load(s + kLanes)));
        }
    }
}

// Calls f(constant R, first row) for `rows` rows in groups of six and a tail.
template <class F>
STAPES_INLINE void by_six(size_t rows, const F& f) {
    size_t row = 0;
    for (; row + 6 <= rows; row += 6) f.template run<6>(row);
    switch (rows - row) {
        case 5: f.template run<5>(row); break;
        case 4: f.template run<4>(row); break;
        case 3: f.template run<3>(row); break;
        case 2: f.template run<2>(row); break;
        case 1: f.template run<1>(row); break;
        default: break;
    }
}

struct SliceF32 {
    const float* w;
    size_t n;
    const float* x;
    size_t x_stride;
    float* sums;
    template <int R>
    void run(size_t row) const {
        panel_f32<R>(w, n, x + row * x_stride, x_stride, sums + row * kTile);
    }
};

struct SliceQ8 {
    const int16_t* w;
    const float* ws;
    size_t blocks;
    const int16_t* xq;
    size_t xq_stride;
    const float* xs;
    size_t xs_stride;
    float* sums;
    template <int R>
    void run(size_t row) const {
        panel_q8<R>(w, ws, blocks, xq + row * xq_stride, xq_stride, xs + row * xs_stride, xs_stride,
                    sums + row * kTile);
    }
};

static void widen_q8_slice(const uint8_t* w, size_t blocks, int16_t* wide, float* scales) {
    for (size_t b = 0; b < blocks; ++b, w += kQ8BlockBytes) {
        const uint16_t* f16 = reinterpret_cast<const uint16_t*>(w);
        vf_store(scales + b * kTile, vf_load_f16(f16));
        vf_store(scales + b * kTile + kLanes, vf_load_f16(f16 + kLanes));
        const int8_t* q = reinterpret_cast<const int8_t*>(w) + kTile * 2;
        int16_t* pairs = wide + b * kBlock * kTile;
        for (size_t i = 0; i < kBlock * kTile; i += 4 * kTile, pairs += 4 * kTile) {
            VI w0 = vi_load(q + i), w1 = vi_load(q + i + 4 * kLanes);
            vi_store(pairs, vi_even_i8(w0));
            vi_store(pairs + 2 * kLanes, vi_even_i8(w1));
            vi_store(pairs + 2 * kTile, vi_odd_i8(w0));
            vi_store(pairs + 2 * kTile + 2 * kLanes, vi_odd_i8(w1));
        }
    }
}

static void many_q8(const LinearJob& job, size_t tile, size_t row, size_t rows, float* scratch) {
    float* sums = scratch;
    float* scales = sums + kRowBlock * kTile;
    int16_t* wide = reinterpret_cast<int16_t*>(scales + kSliceQ8 / kBlock * kTile);
    const size_t blocks = ceil_div(job.in, kBlock), slice = kSliceQ8 / kBlock;
    const uint8_t* w = job.weights + tile * blocks * kQ8BlockBytes;
    for (size_t b = 0; b < blocks; b += slice) {
        size_t n = blocks - b < slice ? blocks - b : slice;
        widen_q8_slice(w + b * kQ8BlockBytes, n, wide, scales);
        by_six(rows, SliceQ8{wide, scales, n, job.xq + row * job.xq_stride + b * kBlock,
                             job.xq_stride, job.xs + row * job.xs_stride + b, job.xs_stride, sums});
    }
}

template <class Words>
static void many_words(const LinearJob& job, size_t tile, size_t row, size_t rows, float* scratch) {
    float* sums = scratch;
    float* wide = sums + kRowBlock * kTile;
    const uint8_t* w = job.weights + tile * tile_bytes(job.format, job.in);
    for (size_t k = 0; k < job.in; k += kSliceF32) {
        size_t n = job.in - k < kSliceF32 ? job.in - k : kSliceF32;
        const uint8_t* source = w + k * kTile * Words::bytes;
        for (size_t i = 0; i < n * kTile; i += kLanes)
            vf_store(wide + i, Words::load(source + i * Words::bytes));
        by_six(rows, SliceF32{wide, n, job.x + row * job.x_stride + k, job.x_stride, sums});
    }
}

static void many_rows(const LinearJob& job, size_t tile, float* scratch) {
    for (size_t row = 0; row < job.rows; row += kRowBlock) {
        size_t rows = job.rows - row < kRowBlock ? job.rows - row : kRowBlock;
        memset(scratch, 0, rows * kTile * sizeof(float));
        switch (job.format) {
            case Format::f32: many_words<WordsF32>(job, tile, row, rows, scratch); break;
            case Format::bf16: many_words<WordsBf16>(job, tile, row, rows, scratch); break;
            case Format::q8: many_q8(job, tile, row, rows, scratch); break;
        }
        for (size_t r = 0; r < rows; ++r) {
            const float* s = scratch + r * kTile;
            finish(job, row + r, tile, vf_load(s), vf_load(s + kLanes));
        }
    }
}

static void linear_tiles(const LinearJob& job, size_t first, size_t last, float* scratch) {
    if (job.rows > kFewRows) {
        for (size_t tile = first; tile < last; ++tile) many_rows(job, tile, scratch);
        return;
    }
    switch (job.format) {
        case Format::f32: few_words_rows<WordsF32>(job, first, last); break;
        case Format::bf16: few_words_rows<WordsBf16>(job, first, last); break;
        case Format::q8: few_q8_rows(job, first, last); break;
    }
}

constexpr float kTinyPeak = 1e-36f;  // up to here a block is zeros: 127 / peak would overflow

static void quantize_block(const float* x, int16_t* q, float* scale) {
    VF largest = vf_zero(), poison = vf_zero();
    for (int i = 0; i < kBlock; i += kLanes) {
        VF value = vf_load(x + i);
        largest = vf_max(vf_abs(value), largest);  // in this order a NaN is passed over
        poison = vf_fma(value, vf_zero(), poison);  // NaN as soon as one value is not finite
    }
    float peak = vf_hmax(largest);
    VF inverse = vf_set1(peak > kTinyPeak ? 127.0f / peak : 0.0f);
    for (int i = 0; i < kBlock; i += kLanes)
        vf_store_quads_i16(q + i, vf_round(vf_mul(vf_load(x + i), inverse)));
    *scale = peak / 127.0f + vf_sum(poison);
}

static void quantize_row(const float* x, size_t n, int16_t* q, float* scales) {
    size_t k = 0;
    for (; k + kBlock <= n; k += kBlock) quantize_block(x + k, q + k, scales + k / kBlock);
    if (k == n) return;
    float tail[kBlock] = {0};
    memcpy(tail, x + k, (n - k) * sizeof(float));
    quantize_block(tail, q + k, scales + k / kBlock);
}
