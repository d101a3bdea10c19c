// q8 weights beside activations of 9 bits, by dot products of bytes. Included by linear.inl where the
// instruction set has them; a tile's 16 outputs are one vector.
//
// An activation is a magnitude of 8 bits, which the product takes as an unsigned byte, and a sign, which
// goes over to the weight: ~w is -w - 1, so that every negative activation leaves the sum short of its
// magnitude, and the sum of these is what it starts from. The sums are the integers that pairs of int16
// give, at 1.3 times their speed (`stapes bench kernels`, 256 rows, in turn).

// A block of activations, times `inverse`, as 32 magnitudes and then 32 signs; returns the sum of the
// magnitudes of the negative ones.
STAPES_INLINE int32_t split_signs(const float* x, VF inverse, uint8_t* bytes) {
    VI negatives = vi_zero();
    for (int i = 0; i < kBlock; i += kLanes)
        negatives = vf_store_signs(bytes + i, bytes + kBlock + i,
                                   vf_round(vf_mul(vf_load(x + i), inverse)), negatives);
    return vi_sum(negatives);
}

// The integer sums of R rows and T tiles over a block, whose weights lie `stride` apart and whose rows
// of magnitudes and signs lie `row_bytes` apart.
template <int R, int T>
STAPES_INLINE void signs_block(const uint8_t* block, size_t stride, const uint8_t* x,
                               size_t row_bytes, VI (*isum)[T]) {
#pragma GCC unroll 8
    for (int quad = 0; quad < kBlock / 4; ++quad) {
        VI w[T];
        for (int t = 0; t < T; ++t)
            w[t] = vi_load(block + t * stride + kTile * 2 + quad * 4 * kTile);
        for (int r = 0; r < R; ++r) {
            const uint8_t* values = x + r * row_bytes + quad * 4;
            VI magnitudes = vi_set1_bytes(values), signs = vi_set1_bytes(values + kBlock);
            for (int t = 0; t < T; ++t) {
                isum[r][t] = vi_dot(isum[r][t], magnitudes, vi_xor(w[t], signs));
                pin(isum[r][t]);
            }
        }
    }
}

// R rows, T tiles.
template <int R, int T>
static void signs(const LinearJob& job, size_t row, size_t tile, Fetch fetch) {
    const size_t blocks = ceil_div(job.in, kBlock), stride = blocks * kQ8BlockBytes;
    const size_t row_bytes = job.xq.stride * sizeof(int16_t);
    const uint8_t* w = job.weights + tile * stride;
    const uint8_t* x = reinterpret_cast<const uint8_t*>(job.xq.words + row * job.xq.stride);
    const float* xs = job.xq.scales + row * job.xq.block_stride;
    const int32_t* negatives = job.xq.sums + row * job.xq.block_stride;
    VF sum[R][T];
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) sum[r][t] = vf_zero();
    for (size_t b = 0; b < blocks; ++b, w += kQ8BlockBytes, x += 2 * kBlock) {
        VI isum[R][T];
        VF ws[T];
        fetch.at<Q8, T>(b, w, stride);
        for (int r = 0; r < R; ++r) {
            VI first = vi_set1(negatives[size_t(r) * job.xq.block_stride + b]);
            for (int t = 0; t < T; ++t) isum[r][t] = first;
        }
        signs_block<R, T>(w, stride, x, row_bytes, isum);
        for (int t = 0; t < T; ++t) load_scales(w + t * stride, ws + t);
        for (int r = 0; r < R; ++r)
            join_block<T>(isum[r], ws, xs[size_t(r) * job.xq.block_stride + b], sum[r]);
    }
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) finish(job, row + r, tile + t, sum[r] + t);
}

template <int T>
struct Signs {
    const LinearJob& job;
    size_t tile;
    template <int R>
    void run(size_t row) const {
        signs<R, T>(job, row, tile, Fetch(job.rows, row, kFewRows));
    }
};

static void signs_rows(const LinearJob& job, size_t first, size_t last) {
    size_t tile = first;
    if (job.rows > kOneTileRows)
        for (; tile + kFewTiles <= last; tile += kFewTiles)
            by_rows<kFewRows>(job.rows, Signs<kFewTiles>{job, tile});
    for (; tile < last; ++tile) by_rows<kFewRows>(job.rows, Signs<1>{job, tile});
}
