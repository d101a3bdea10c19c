// q8 weights by products of int16 pairs, and q4 where there are no dot products of bytes. Included by
// linear.inl.
//
// A quad of inputs is split into the pairs (0, 2) and (1, 3): shifts do that to packed weights in
// place, and the activations of a quad are stored as 0 2 1 3.

// One quad of 16 outputs -> [2 pairs][16 outputs][2] int16.
STAPES_INLINE void widen_quad(const VI* quad, int16_t* wide) {
    for (int p = 0; p < kParts; ++p) {
        vi_store(wide + p * 2 * kLanes, vi_even_i8(quad[p]));
        vi_store(wide + 2 * kTile + p * 2 * kLanes, vi_odd_i8(quad[p]));
    }
}

struct Q8 {
    static constexpr size_t bytes = kQ8BlockBytes;
    // Two tiles side by side are faster so than by slices, however many the rows.
    static constexpr size_t few_rows = kFewTiles > 1 ? size_t(-1) : 24;
    // One block -> [16 pairs][16 outputs][2] int16.
    static void widen(const uint8_t* block, int16_t* wide) {
        for (int i = 0; i < kBlock * kTile; i += 4 * kTile) {
            VI quad[kParts];
            for (int p = 0; p < kParts; ++p)
                quad[p] = vi_load(block + kTile * 2 + i + p * 4 * kLanes);
            widen_quad(quad, wide + i);
        }
    }
};

#if !defined(STAPES_BYTE_DOTS)
struct Q4 {
    static constexpr size_t bytes = kQ4BlockBytes;
    // Products of nibbles and bytes are twice as fast as those of int16 pairs: no need to widen.
    static constexpr size_t few_rows = kNibbleProducts ? size_t(-1) : 24;
    static void widen(const uint8_t* block, int16_t* wide) {
        for (int i = 0; i < kBlock * kTile; i += 8 * kTile) {
            VI low[kParts], high[kParts];
            for (int p = 0; p < kParts; ++p) {
                VI octet = vi_load(block + kTile * 2 + i / 2 + p * 4 * kLanes);
                low[p] = vi_minus_8(vi_low_nibbles(octet));
                high[p] = vi_minus_8(vi_high_nibbles(octet));
            }
            widen_quad(low, wide + i);
            widen_quad(high, wide + i + 4 * kTile);
        }
    }
};
#endif

// sum = fma(float(isum), ws * xs, sum), for V vectors of outputs.
template <int V>
STAPES_INLINE void join_block(const VI* isum, const VF* ws, float xs, VF* sum) {
    VF scale = vf_set1(xs);
    for (int v = 0; v < V; ++v)
        sum[v] = vf_fma(vi_to_float(isum[v]), vf_mul(ws[v], scale), sum[v]);
}

STAPES_INLINE void load_scales(const uint8_t* block, VF* ws) {
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(block);
    for (int p = 0; p < kParts; ++p) ws[p] = vf_load_f16(scales + p * kLanes);
}

// The integer sums of R rows and T tiles over block b, whose weights lie `stride` apart.
template <int R, int T>
STAPES_INLINE void few_block(const Q8&, const uint8_t* block, size_t stride, const LinearJob& job,
                             size_t row, size_t b, VI (*isum)[T * kParts]) {
    const int16_t* x = job.xq.words + row * job.xq.stride + b * kBlock;
#pragma GCC unroll 8
    for (int quad = 0; quad < kBlock / 4; ++quad) {
        VI even[T * kParts], odd[T * kParts];
        for (int v = 0; v < T * kParts; ++v) {
            const uint8_t* q = block + v / kParts * stride + kTile * 2 + quad * 4 * kTile;
            VI w = vi_load(q + v % kParts * 4 * kLanes);
            even[v] = vi_even_i8(w), odd[v] = vi_odd_i8(w);
        }
        for (int r = 0; r < R; ++r) {
            const int16_t* values = x + r * job.xq.stride + quad * 4;
            VI first = vi_set1_pair(values), second = vi_set1_pair(values + 2);
            for (int v = 0; v < T * kParts; ++v) {
                isum[r][v] = vi_madd(isum[r][v], even[v], first);
                pin(isum[r][v]);
            }
            for (int v = 0; v < T * kParts; ++v) {
                isum[r][v] = vi_madd(isum[r][v], odd[v], second);
                pin(isum[r][v]);
            }
        }
    }
}

#if defined(STAPES_BYTE_DOTS)
// q4 is in linear_bytes.inl.
#elif defined(STAPES_AVX2)
// Unsigned nibbles by signed bytes: a lane of 16 bits takes 8 sums of two products of at most
// 15 * 127, 30,480 in all. The offset of 8 is taken out through the sum of the activations.
template <int R, int T>
STAPES_INLINE void few_block(const Q4&, const uint8_t* block, size_t, const LinearJob& job,
                             size_t row, size_t b, VI (*isum)[kParts]) {
    const uint8_t* q = block + kTile * 2;
    const int8_t* x = job.xq.bytes + row * job.xq.stride + b * kBlock;
#pragma GCC unroll 4
    for (int octet = 0; octet < kBlock / 8; ++octet) {
        for (int p = 0; p < kParts; ++p) {
            VI w = vi_load(q + octet * 4 * kTile + p * 4 * kLanes);
            VI low = vi_low_nibbles(w), high = vi_high_nibbles(w);
            for (int r = 0; r < R; ++r) {
                const int8_t* values = x + r * job.xq.stride + octet * 8;
                isum[r][p] = vi_madd_nibbles(isum[r][p], low, vi_set1_quad(values));
                isum[r][p] = vi_madd_nibbles(isum[r][p], high, vi_set1_quad(values + 4));
                pin(isum[r][p]);
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        int32_t offset = 8 * job.xq.sums[(row + r) * job.xq.block_stride + b];
        for (int p = 0; p < kParts; ++p) isum[r][p] = vi_add_pairs(isum[r][p], offset);
    }
}
#else
template <int R, int T>
STAPES_INLINE void few_block(const Q4&, const uint8_t* block, size_t, const LinearJob& job,
                             size_t row, size_t b, VI (*isum)[kParts]) {
    int16_t wide[kBlock * kTile];
    Q4::widen(block, wide);
    for (int pair = 0; pair < kBlock / 2; ++pair)
        for (int r = 0; r < R; ++r)
            for (int p = 0; p < kParts; ++p)
                isum[r][p] = vi_madd(isum[r][p], vi_load(wide + pair * 2 * kTile + p * 2 * kLanes),
                                     vi_set1_pair(job.xq.words + (row + r) * job.xq.stride +
                                                  b * kBlock + pair * 2));
}
#endif

// R rows, T tiles, straight from packed weights.
template <class Q, int R, int T>
static void few_pairs(const LinearJob& job, size_t row, size_t tile, Fetch fetch) {
    constexpr int V = T * kParts;
    const size_t blocks = ceil_div(job.in, kBlock), stride = blocks * Q::bytes;
    const uint8_t* w = job.weights + tile * stride;
    const float* xs = job.xq.scales + row * job.xq.block_stride;
    VF sum[R][V];
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) sum[r][v] = vf_zero();
    for (size_t b = 0; b < blocks; ++b, w += Q::bytes) {
        VI isum[R][V];
        VF ws[V];
        fetch.at<Q, T>(b, w, stride);
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v) isum[r][v] = vi_zero();
        few_block<R, T>(Q{}, w, stride, job, row, b, isum);
        for (int t = 0; t < T; ++t) load_scales(w + t * stride, ws + t * kParts);
        for (int r = 0; r < R; ++r)
            join_block<V>(isum[r], ws, xs[size_t(r) * job.xq.block_stride + b], sum[r]);
    }
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) finish(job, row + r, tile + t, sum[r] + t * kParts);
}

template <class Q, int T, int Group>
struct FewPairs {
    const LinearJob& job;
    size_t tile;
    template <int R>
    void run(size_t row) const {
        few_pairs<Q, R, T>(job, row, tile, Fetch(job.rows, row, Group));
    }
};

template <class Q>
static void few_pairs_rows(const LinearJob& job, size_t first, size_t last) {
    size_t tile = first;
    if (job.rows > kOneTileRows)
        for (; tile + kFewTiles <= last; tile += kFewTiles)
            by_rows<kFewRows>(job.rows, FewPairs<Q, kFewTiles, kFewRows>{job, tile});
    for (; tile < last; ++tile) by_rows<4>(job.rows, FewPairs<Q, 1, 4>{job, tile});
}

// R rows by 16 outputs over widened blocks [blocks][16 pairs][16 outputs][2] with their scales
// [blocks][16]; sums [R][16] are carried along.
template <int R>
static void panel_pairs(const int16_t* w, const float* ws, size_t blocks, const int16_t* x,
                        size_t x_stride, const float* xs, size_t xs_stride, float* sums) {
    for (size_t b = 0; b < blocks; ++b, w += kBlock * kTile, x += kBlock) {
        VI isum[R][kParts];
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r)
            for (int p = 0; p < kParts; ++p) isum[r][p] = vi_zero();
        for (int pair = 0; pair < kBlock / 2; ++pair) {
            VI weights[kParts];
            for (int p = 0; p < kParts; ++p)
                weights[p] = vi_load(w + pair * 2 * kTile + p * 2 * kLanes);
#pragma GCC unroll 12
            for (int r = 0; r < R; ++r) {
                VI value = vi_set1_pair(x + r * x_stride + pair * 2);
                for (int p = 0; p < kParts; ++p) {
                    isum[r][p] = vi_madd(isum[r][p], weights[p], value);
                    pin(isum[r][p]);
                }
            }
        }
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            VF scale = vf_set1(xs[r * xs_stride + b]);
            for (int p = 0; p < kParts; ++p) {
                float* s = sums + r * kTile + p * kLanes;
                VF both = vf_mul(vf_load(ws + b * kTile + p * kLanes), scale);
                vf_store(s, vf_fma(vi_to_float(isum[r][p]), both, vf_load(s)));
            }
        }
    }
}

struct SlicePairs {
    const int16_t* w;
    const float* ws;
    size_t blocks;
    const LinearJob& job;
    size_t first_row, first_block;
    float* sums;
    template <int R>
    void run(size_t row) const {
        size_t r = first_row + row;
        panel_pairs<R>(w, ws, blocks, job.xq.words + r * job.xq.stride + first_block * kBlock,
                       job.xq.stride, job.xq.scales + r * job.xq.block_stride + first_block,
                       job.xq.block_stride, sums + row * kTile);
    }
};

template <class Q>
static void many_pairs(const LinearJob& job, size_t tile, size_t row, size_t rows,
                        float* scratch) {
    float* scales = scratch + kRowBlock * kTile;
    int16_t* wide = reinterpret_cast<int16_t*>(scales + kSliceBlocks * kTile);
    const size_t blocks = ceil_div(job.in, kBlock);
    const uint8_t* w = job.weights + tile * blocks * Q::bytes;
    for (size_t b = 0; b < blocks; b += kSliceBlocks) {
        size_t n = blocks - b < kSliceBlocks ? blocks - b : kSliceBlocks;
        for (size_t i = 0; i < n; ++i, w += Q::bytes) {
            Q::widen(w, wide + i * kBlock * kTile);
            VF ws[kParts];
            load_scales(w, ws);
            for (int p = 0; p < kParts; ++p) vf_store(scales + i * kTile + p * kLanes, ws[p]);
        }
        by_panel(rows, SlicePairs{wide, scales, n, job, row, b, scratch});
    }
}

#if !defined(STAPES_BYTE_DOTS)
static void few_q4_rows(const LinearJob& job, size_t first, size_t last) {
    few_pairs_rows<Q4>(job, first, last);
}
static void many_q4(const LinearJob& job, size_t tile, size_t row, size_t rows, float* scratch) {
    many_pairs<Q4>(job, tile, row, rows, scratch);
}
#endif
