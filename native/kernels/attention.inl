// Softmax attention of query rows over blocks of 256 keys. Included by kernels.inl.
//
// A block's partial (maximum, sum, weighted values) is computed from that block alone, and partials
// are combined in position order: the result does not depend on which rows are computed together.
//   score = scale * fma over head_dim in order;  p = exp(score - block maximum)
//   partial values: fma over the visible keys in order, never over keys that are not visible.

struct KvF32 {
    using word = float;
    STAPES_INLINE VF load(const word* p) { return vf_load(p); }
};
struct KvF16 {
    using word = uint16_t;
    STAPES_INLINE VF load(const word* p) { return vf_load_f16(p); }
};
struct KvBf16 {
    using word = uint16_t;
    STAPES_INLINE VF load(const word* p) { return vf_load_bf16(p); }
};

constexpr size_t kWidenFrom = 7;  // queries from which a block is widened to f32 first
constexpr size_t kKeyChunk = 32;  // keys whose values are used, all lanes of them, while they are in L1

// What attention over some keys gives: for each query the largest score, the sum of the weights
// exp(score - largest), and the values summed with these weights. In attend_partial_floats().
struct Attended {
    float *values, *maxima, *totals;  // [queries][padded], [queries], [queries]
    size_t padded;
    Attended(const AttendJob& job, float* memory)
        : values(memory), padded(round_up(job.head_dim, kTile)) {
        maxima = values + job.queries * padded;
        totals = maxima + job.queries;
    }
    void clear(size_t queries) const {
        memset(values, 0, queries * padded * sizeof(float));
        for (size_t query = 0; query < queries; ++query) {
            maxima[query] = -__builtin_inff();
            totals[query] = 0.0f;
        }
    }
};

// The parts of AttendJob::scratch.
struct AttendScratch {
    float *scores, *sum, *partial, *keys, *values;
    size_t padded;
    explicit AttendScratch(const AttendJob& job) : padded(round_up(job.head_dim, kTile)) {
        scores = job.scratch;                                            // [queries][256]
        sum = scores + job.queries * kKeyBlock;                          // an Attended
        partial = sum + attend_partial_floats(job.queries, job.head_dim);  // an Attended
        keys = partial + attend_partial_floats(job.queries, job.head_dim);  // [head_dim][16]
        values = keys + kKeyTile * job.head_dim;                         // [256][padded]
    }
};

// Words of the cache that are used now, and those that will be used when these are done with: they
// are fetched into the second level of cache meanwhile, for memory is far away. Prefetching changes
// no result, and may point anywhere.
template <class Kv>
struct Stream {
    const typename Kv::word *now, *next;
    Stream operator+(size_t words) const { return {now + words, next + words}; }
    VF load(size_t index) const { return Kv::load(now + index); }
    void fetch_next(size_t index) const { prefetch_far(next + index); }
};

// The keys of a block are followed by its values, these by the keys of the next block or job.
template <class Kv>
STAPES_INLINE Stream<Kv> key_stream(const AttendJob& job, size_t block) {
    return {static_cast<const typename Kv::word*>(job.k[block]),
            static_cast<const typename Kv::word*>(job.v[block])};
}
template <class Kv>
STAPES_INLINE Stream<Kv> value_stream(const AttendJob& job, size_t block) {
    const void* next = block + 1 < job.blocks ? job.k[block + 1] : job.later;
    return {static_cast<const typename Kv::word*>(job.v[block]),
            static_cast<const typename Kv::word*>(next)};
}

// Visible keys of a query inside the block that starts at `first`.
STAPES_INLINE size_t visible_in(const AttendJob& job, size_t query, size_t first) {
    size_t visible = size_t(job.visible[query]);
    if (visible <= first) return 0;
    return visible - first < size_t(kKeyBlock) ? visible - first : size_t(kKeyBlock);
}

// How many vectors of independent sums a loop needs to hide the latency of fma, for R rows.
template <int R>
constexpr int kGroups = R * kParts >= 8 ? 1 : 8 / (R * kParts);

// R queries against T neighbouring tiles of 16 keys.
template <class Kv, int R, int T>
STAPES_INLINE void score_tiles(const AttendJob& job, size_t query, const Stream<Kv>& keys,
                               float* scores) {
    const size_t tile_words = job.head_dim * kKeyTile;
    VF sum[R][T * kParts];
    const float* q[R];
    for (int r = 0; r < R; ++r) {
        for (int p = 0; p < T * kParts; ++p) sum[r][p] = vf_zero();
        q[r] = job.q[query + r];
    }
    for (size_t i = 0; i < job.head_dim; ++i) {
        VF k[T * kParts];
        for (int t = 0; t < T; ++t) keys.fetch_next(t * tile_words + i * kKeyTile);
        for (int p = 0; p < T * kParts; ++p)
            k[p] = keys.load((p / kParts) * tile_words + i * kKeyTile + p % kParts * kLanes);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            VF value = vf_set1(q[r][i]);
            for (int p = 0; p < T * kParts; ++p) {
                sum[r][p] = vf_fma(k[p], value, sum[r][p]);
                pin(sum[r][p]);
            }
        }
    }
    VF scale = vf_set1(job.scale);
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < T * kParts; ++p)
            vf_store(scores + r * kKeyBlock + p * kLanes, vf_mul(sum[r][p], scale));
}

// Rows against `tiles` tiles.
template <class Kv>
struct ScoreRows {
    const AttendJob& job;
    Stream<Kv> keys;
    size_t tiles;
    float* scores;  // of query 0, at the first tile
    template <int R>
    void run(size_t query) const {
        constexpr int T = kGroups<R>;
        const size_t tile_words = job.head_dim * kKeyTile;
        float* target = scores + query * kKeyBlock;
        size_t tile = 0;
        for (; tile + T <= tiles; tile += T)
            score_tiles<Kv, R, T>(job, query, keys + tile * tile_words, target + tile * kKeyTile);
        for (; tile < tiles; ++tile)
            score_tiles<Kv, R, 1>(job, query, keys + tile * tile_words, target + tile * kKeyTile);
    }
};

template <class Kv>
static void score_block(const AttendJob& job, const AttendScratch& s, size_t block, size_t keys) {
    const size_t tile_words = job.head_dim * kKeyTile, tiles = ceil_div(keys, kKeyTile);
    Stream<Kv> k = key_stream<Kv>(job, block);
    if (job.queries < kWidenFrom)
        return by_panel(job.queries, ScoreRows<Kv>{job, k, tiles, s.scores});
    for (size_t tile = 0; tile < tiles; ++tile, k = k + tile_words) {
        for (size_t i = 0; i < tile_words; i += kLanes) vf_store(s.keys + i, k.load(i));
        Stream<KvF32> wide{s.keys, s.keys};
        by_panel(job.queries, ScoreRows<KvF32>{job, wide, 1, s.scores + tile * kKeyTile});
    }
}

// Scores -> exp(score - maximum) in place; keys that are not visible become 0.
STAPES_INLINE void softmax_block(float* scores, size_t visible, float* maximum, float* total) {
    const size_t padded = round_up(visible, kLanes);
    for (size_t i = visible; i < padded; ++i) scores[i] = -__builtin_inff();
    VF largest = vf_load(scores);
    for (size_t i = kLanes; i < padded; i += kLanes) largest = vf_max(largest, vf_load(scores + i));
    *maximum = vf_hmax(largest);
    VF centre = vf_set1(*maximum), sum = vf_zero();
    for (size_t i = 0; i < padded; i += kLanes) {
        VF p = vf_exp(vf_sub(vf_load(scores + i), centre));
        vf_store(scores + i, p);
        sum = vf_add(sum, p);
    }
    *total = vf_sum(sum);
}

// sums[R][G * 16 lanes] += p[R][keys] * v, `keys` keys in order.
template <class Kv, int R, int G>
STAPES_INLINE void value_lanes(const float* p, const Stream<Kv>& v, size_t v_stride, size_t keys,
                               float* sums, size_t padded) {
    VF sum[R][G * kParts];
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < G * kParts; ++i) sum[r][i] = vf_load(sums + r * padded + i * kLanes);
    for (size_t j = 0; j < keys; ++j) {
        VF value[G * kParts];
        for (int g = 0; g < G; ++g) v.fetch_next(j * v_stride + g * kTile);
        for (int i = 0; i < G * kParts; ++i) value[i] = v.load(j * v_stride + i * kLanes);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            VF weight = vf_set1(p[r * kKeyBlock + j]);
            for (int i = 0; i < G * kParts; ++i) {
                sum[r][i] = vf_fma(weight, value[i], sum[r][i]);
                pin(sum[r][i]);
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < G * kParts; ++i) vf_store(sums + r * padded + i * kLanes, sum[r][i]);
}

template <class Kv>
struct ValueRows {
    const AttendJob& job;
    const AttendScratch& s;
    Stream<Kv> v;
    size_t v_stride;
    size_t first;  // position of the block's first key
    float* sums;   // [queries][padded]
    template <int R>
    void run(size_t query) const {
        size_t common = kKeyBlock;
        for (int r = 0; r < R; ++r) {
            size_t visible = visible_in(job, query + r, first);
            common = visible < common ? visible : common;
        }
        for (size_t from = 0; from < common; from += kKeyChunk)
            add_keys<R>(query, from, from + kKeyChunk < common ? from + kKeyChunk : common);
        for (int r = 0; r < R; ++r) add_keys<1>(query + r, common, visible_in(job, query + r, first));
    }

    // Keys [from, to), which all R rows see.
    template <int R>
    void add_keys(size_t query, size_t from, size_t to) const {
        constexpr int G = kGroups<R>;
        const float* p = s.scores + query * kKeyBlock + from;
        const Stream<Kv> chunk = v + from * v_stride;
        float* sum = sums + query * s.padded;
        size_t lane = 0;
        for (; lane + G * kTile <= s.padded; lane += G * kTile)
            value_lanes<Kv, R, G>(p, chunk + lane, v_stride, to - from, sum + lane, s.padded);
        for (; lane < s.padded; lane += kTile)
            value_lanes<Kv, R, 1>(p, chunk + lane, v_stride, to - from, sum + lane, s.padded);
    }
};

template <class Kv>
static void value_block(const AttendJob& job, const AttendScratch& s, size_t block, size_t keys,
                        float* sums) {
    const Stream<Kv> v = value_stream<Kv>(job, block);
    const size_t first = block * kKeyBlock;
    memset(sums, 0, job.queries * s.padded * sizeof(float));
    if (job.queries < kWidenFrom)
        return by_panel(job.queries, ValueRows<Kv>{job, s, v, job.v_stride, first, sums});
    for (size_t j = 0; j < keys; ++j)
        for (size_t lane = 0; lane < s.padded; lane += kLanes)
            vf_store(s.values + j * s.padded + lane, v.load(j * job.v_stride + lane));
    Stream<KvF32> wide{s.values, s.values};
    by_panel(job.queries, ValueRows<KvF32>{job, s, wide, s.padded, first, sums});
}

template <class Kv>
static void attend_one(const AttendJob& job, size_t block, const Attended& result) {
    const AttendScratch s(job);
    const size_t first = block * kKeyBlock;
    size_t keys = 0;
    for (size_t query = 0; query < job.queries; ++query) {
        size_t visible = visible_in(job, query, first);
        keys = visible > keys ? visible : keys;
    }
    score_block<Kv>(job, s, block, keys);
    for (size_t query = 0; query < job.queries; ++query)
        if (size_t visible = visible_in(job, query, first))
            softmax_block(s.scores + query * kKeyBlock, visible, result.maxima + query,
                          result.totals + query);
    value_block<Kv>(job, s, block, keys, result.values);
}

static void attend_one(const AttendJob& job, size_t block, const Attended& result) {
    switch (job.kv_type) {
        case KvType::f32: return attend_one<KvF32>(job, block, result);
        case KvType::f16: return attend_one<KvF16>(job, block, result);
        case KvType::bf16: return attend_one<KvBf16>(job, block, result);
    }
}

// What a block gave joins what the blocks before it gave.
static void join(const AttendJob& job, size_t block, const Attended& sum, const Attended& partial) {
    for (size_t query = 0; query < job.queries; ++query) {
        if (!visible_in(job, query, block * kKeyBlock)) continue;
        float before = sum.maxima[query], maximum = partial.maxima[query];
        float both = maximum > before ? maximum : before;
        float steps[kLanes] = {before - both, maximum - both};
        vf_store(steps, vf_exp(vf_load(steps)));
        VF keep = vf_set1(steps[0]), add = vf_set1(steps[1]);
        float* to = sum.values + query * sum.padded;
        const float* from = partial.values + query * sum.padded;
        for (size_t i = 0; i < sum.padded; i += kLanes)
            vf_store(to + i, vf_fma(vf_load(to + i), keep, vf_mul(vf_load(from + i), add)));
        sum.totals[query] = sum.totals[query] * steps[0] + partial.totals[query] * steps[1];
        sum.maxima[query] = both;
    }
}

static void finish(const AttendJob& job, const Attended& sum) {
    for (size_t query = 0; query < job.queries; ++query) {
        VF total = vf_set1(sum.totals[query]);
        map1(sum.values + query * sum.padded, job.head_dim, job.out[query],
             [total](VF a) { return vf_div(a, total); });
    }
}

static void attend(const AttendJob& job) {
    const AttendScratch s(job);
    const Attended sum(job, s.sum), partial(job, s.partial);
    sum.clear(job.queries);
    for (size_t block = 0; block < job.blocks; ++block) {
        attend_one(job, block, partial);
        join(job, block, sum, partial);
    }
    finish(job, sum);
}

static void attend_block(const AttendJob& job, size_t block, float* partial) {
    attend_one(job, block, Attended(job, partial));
}

static void attend_join(const AttendJob& job, float* partials, size_t stride) {
    const Attended sum(job, job.scratch);
    sum.clear(job.queries);
    for (size_t block = 0; block < job.blocks; ++block)
        join(job, block, sum, Attended(job, partials + block * stride));
    finish(job, sum);
}

STAPES_INLINE void store_word(KvType type, void* base, size_t index, float value) {
    if (type == KvType::f32)
        static_cast<float*>(base)[index] = value;
    else
        static_cast<uint16_t*>(base)[index] =
            type == KvType::f16 ? float_to_f16(value) : float_to_bf16(value);
}

// A key that is or becomes infinite is stored as NaN: with a score of -infinity it would get no weight
// and vanish, and the answer look sound.
static void store_key(KvType type, const float* x, size_t head_dim, void* tile, size_t lane) {
    // The largest values that round to a finite word.
    const float limit = type == KvType::f16    ? 65519.996f
                        : type == KvType::bf16 ? 3.3961773e38f
                                               : 3.4028234664e38f;
    for (size_t i = 0; i < head_dim; ++i) {
        float magnitude = x[i] < 0.0f ? -x[i] : x[i];
        float value = magnitude <= limit ? x[i] : __builtin_nanf("");
        store_word(type, tile, i * kKeyTile + lane, value);
    }
}

static void store_value(KvType type, const float* x, size_t head_dim, void* row) {
    for (size_t i = 0; i < head_dim; ++i) store_word(type, row, i, x[i]);
}
