// q4 weights by dot products of bytes (unsigned weights, signed activations). Included by linear.inl
// where the instruction set has them; a tile's 16 outputs are one vector.
//
// Weights are made unsigned by an offset of 8, which starts every sum at -8 * (sum of the
// activations): integers, so the result is exact.

struct Q4 {
    static constexpr size_t bytes = kQ4BlockBytes, few_rows = 24;
    static constexpr int32_t offset = 8;
    template <class F>
    STAPES_INLINE void each_quad(const uint8_t* block, const F& use) {
#pragma GCC unroll 4
        for (int octet = 0; octet < kBlock / 8; ++octet) {
            VI w = vi_load(block + kTile * 2 + octet * 4 * kTile);
            use(2 * octet, vi_low_nibbles(w));
            use(2 * octet + 1, vi_high_nibbles(w));
        }
    }
};

STAPES_INLINE VF block_scales(const uint8_t* block) {
    return vf_load_f16(reinterpret_cast<const uint16_t*>(block));
}

// R rows, one tile, straight from packed weights.
template <class Q, int R>
static void few_bytes(const LinearJob& job, size_t row, size_t tile) {
    const size_t blocks = ceil_div(job.in, kBlock), stride = job.xq.stride;
    const uint8_t* w = job.weights + tile * blocks * Q::bytes;
    const int8_t* x = job.xq.bytes + row * stride;
    const float* xs = job.xq.scales + row * job.xq.block_stride;
    const int32_t* xsum = job.xq.sums + row * job.xq.block_stride;
    VF sum[R];
    for (int r = 0; r < R; ++r) sum[r] = vf_zero();
    for (size_t b = 0; b < blocks; ++b, w += Q::bytes, x += kBlock) {
        for (size_t line = 0; line < Q::bytes; line += 64) prefetch(w + kPrefetchBytes + line);
        VI isum[R];
        for (int r = 0; r < R; ++r) isum[r] = vi_set1(-Q::offset * xsum[r * job.xq.block_stride + b]);
        Q::each_quad(w, [&](int quad, VI weights) {
            for (int r = 0; r < R; ++r)
                isum[r] = vi_dot_quad(isum[r], weights, x + r * stride + quad * 4);
        });
        VF ws = block_scales(w);
        for (int r = 0; r < R; ++r) {
            VF both = vf_mul(ws, vf_set1(xs[r * job.xq.block_stride + b]));
            sum[r] = vf_fma(vi_to_float(isum[r]), both, sum[r]);
        }
    }
    for (int r = 0; r < R; ++r) finish(job, row + r, tile, &sum[r]);
}

template <class Q>
struct FewBytes {
    const LinearJob& job;
    size_t tile;
    template <int R>
    void run(size_t row) const {
        few_bytes<Q, R>(job, row, tile);
    }
};

template <class Q>
static void few_bytes_rows(const LinearJob& job, size_t first, size_t last) {
    for (size_t tile = first; tile < last; ++tile)
        by_rows<8>(job.rows, FewBytes<Q>{job, tile});
}

// R rows by 16 outputs over widened blocks [blocks][8 quads][16 outputs][4] with their scales
// [blocks][16]; sums [R][16] are carried along.
template <int R>
static void panel_bytes(const uint8_t* w, const float* ws, size_t blocks, int32_t offset,
                        const QuantizedRows& xq, size_t row, size_t block, float* sums) {
    const int8_t* x = xq.bytes + row * xq.stride + block * kBlock;
    const float* xs = xq.scales + row * xq.block_stride + block;
    const int32_t* xsum = xq.sums + row * xq.block_stride + block;
    VF sum[R];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) sum[r] = vf_load(sums + r * kTile);
    for (size_t b = 0; b < blocks; ++b, x += kBlock) {
        VI isum[R];
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) isum[r] = vi_set1(-offset * xsum[r * xq.block_stride + b]);
        for (int quad = 0; quad < kBlock / 4; ++quad, w += 4 * kTile) {
            VI weights = vi_load(w);
#pragma GCC unroll 12
            for (int r = 0; r < R; ++r) {
                isum[r] = vi_dot_quad(isum[r], weights, x + r * xq.stride + quad * 4);
                pin(isum[r]);
            }
        }
        VF scales = vf_load(ws + b * kTile);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            VF both = vf_mul(scales, vf_set1(xs[r * xq.block_stride + b]));
            sum[r] = vf_fma(vi_to_float(isum[r]), both, sum[r]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) vf_store(sums + r * kTile, sum[r]);
}

struct SliceBytes {
    const uint8_t* w;
    const float* ws;
    size_t blocks;
    int32_t offset;
    const LinearJob& job;
    size_t first_row, first_block;
    float* sums;
    template <int R>
    void run(size_t row) const {
        panel_bytes<R>(w, ws, blocks, offset, job.xq, first_row + row, first_block,
                       sums + row * kTile);
    }
};

template <class Q>
static void many_bytes(const LinearJob& job, size_t tile, size_t row, size_t rows,
                        float* scratch) {
    float* scales = scratch + kRowBlock * kTile;
    uint8_t* wide = reinterpret_cast<uint8_t*>(scales + kSliceBlocks * kTile);
    const size_t blocks = ceil_div(job.in, kBlock);
    const uint8_t* w = job.weights + tile * blocks * Q::bytes;
    for (size_t b = 0; b < blocks; b += kSliceBlocks) {
        size_t n = blocks - b < kSliceBlocks ? blocks - b : kSliceBlocks;
        for (size_t i = 0; i < n; ++i, w += Q::bytes) {
            uint8_t* block = wide + i * kBlock * kTile;
            Q::each_quad(w, [&](int quad, VI weights) { vi_store(block + quad * 4 * kTile, weights); });
            vf_store(scales + i * kTile, block_scales(w));
        }
        by_panel(rows, SliceBytes{wide, scales, n, Q::offset, job, row, b, scratch});
    }
}

static void few_q4_rows(const LinearJob& job, size_t first, size_t last) {
    few_bytes_rows<Q4>(job, first, last);
}
static void many_q4(const LinearJob& job, size_t tile, size_t row, size_t rows, float* scratch) {
    many_bytes<Q4>(job, tile, row, rows, scratch);
}
