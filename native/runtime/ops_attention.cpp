// Attention: of decoder rows over their sequence's cache, and of encoder rows inside their window.
#include "ops.hpp"

#include <cstring>

namespace stapes {

namespace {

constexpr size_t kChunkQueries = 48;  // query rows that share one pass over the keys
constexpr size_t kMostQueries = 256;  // bound of the arrays on the stack

// Consecutive rows of a run that belong to one sequence, at consecutive positions.
struct Group {
    KvCache* cache;
    size_t row, rows, position;
};

struct Heads {
    size_t layer, q, kv, dim;
    explicit Heads(const Op& op)
        : layer(size_t(op.ints[0])), q(size_t(op.ints[1])), kv(size_t(op.ints[2])),
          dim(size_t(op.ints[3])) {}
    size_t group() const { return q / kv; }
    size_t chunk_rows() const { return std::max<size_t>(1, kChunkQueries / group()); }
};

std::vector<Group> groups_of(const Op& op, const Frame& frame) {
    const int32_t* sequence = frame.ints(op.inputs[3]);
    const int32_t* position = frame.ints(op.inputs[4]);
    std::vector<Group> groups;
    for (size_t r = 0, n = frame.rows(op.output); r < n; ++r) {
        if (r && sequence[r] == sequence[r - 1])
            ++groups.back().rows;
        else
            groups.push_back({frame.caches[size_t(sequence[r])], r, 1, size_t(position[r])});
    }
    return groups;
}

// cached_attention: q [rows, heads * d], k and v [rows, kv_heads * d], sequences i32, positions i32
// -> [rows, heads * d]. Stores k and v, then attends to keys 0..position of the row's sequence.
// ints: layer, heads, kv_heads, head_dim
void check_cached_attention(const Plan& plan, const Op& op) {
    for (int64_t value : op.ints) need(op, value >= 0 && value < 65536, "a size is out of range");
    need(op, op.ints[1] > 0 && op.ints[2] > 0 && op.ints[3] > 0, "a size is zero");
    Heads heads(op);
    need(op, heads.q % heads.kv == 0 && heads.group() <= kMostQueries,
         "heads are no multiple of kv_heads");
    for (size_t i = 0; i < 5; ++i) need_same_rows(plan, op, op.inputs[i], op.output);
    need_widths(op, {op.inputs[0].width, op.output.width}, heads.q * heads.dim);
    need_widths(op, {op.inputs[1].width, op.inputs[2].width}, heads.kv * heads.dim);
    need_ints(plan, op, 3);
    need_ints(plan, op, 4);
}

[[noreturn]] void refuse_row(const Op& op, size_t row, const std::string& why) {
    throw std::out_of_range(op.kind + ": row " + std::to_string(row) + ": " + why);
}

void check_rows_in_order(const Op& op, const Frame& frame) {
    const int32_t* sequence = frame.ints(op.inputs[3]);
    const int32_t* position = frame.ints(op.inputs[4]);
    std::vector<bool> seen(frame.caches.size(), false);
    for (size_t r = 0, n = frame.rows(op.output); r < n; ++r) {
        if (sequence[r] < 0 || size_t(sequence[r]) >= frame.caches.size())
            refuse_row(op, r, "no sequence " + std::to_string(sequence[r]));
        if (position[r] < 0) refuse_row(op, r, "its position is negative");
        if (r && sequence[r] == sequence[r - 1]) {
            if (position[r] != position[r - 1] + 1) refuse_row(op, r, "its position has a gap");
            continue;
        }
        if (seen[size_t(sequence[r])]) refuse_row(op, r, "its sequence comes twice");
        seen[size_t(sequence[r])] = true;
        if (size_t(position[r]) > frame.caches[size_t(sequence[r])]->length())
            refuse_row(op, r, "its position lies beyond what its cache holds");
    }
}

void check_run_cached_attention(const Op& op, const Frame& frame) {
    check_rows_in_order(op, frame);
    Heads heads(op);
    for (const Group& group : groups_of(op, frame)) {
        KvCache& cache = *group.cache;
        if (heads.layer >= cache.layers() || heads.kv != cache.kv_heads() ||
            heads.dim != cache.head_dim())
            refuse_row(op, group.row, "its cache has another shape");
        cache.prepare(group.position, group.position + group.rows);
    }
}

void store_rows(const Op& op, const Frame& frame, const Group& group) {
    const Heads heads(op);
    const Kernels& kernels = frame.engine.kernels();
    const KvCache& cache = *group.cache;
    frame.engine.pool().parallel(group.rows, 4, [&](size_t first, size_t last, int) {
        for (size_t i = first; i < last; ++i) {
            size_t position = group.position + i;
            const float* k = frame.row(op.inputs[1], group.row + i);
            const float* v = frame.row(op.inputs[2], group.row + i);
            for (size_t h = 0; h < heads.kv; ++h) {
                kernels.store_key(cache.type(), k + h * heads.dim, heads.dim,
                                  cache.key_tile(heads.layer, h, position), position % kKeyTile);
                kernels.store_value(cache.type(), v + h * heads.dim, heads.dim,
                                    cache.value_row(heads.layer, h, position));
            }
        }
    });
}

// Rows [row, row + rows) of a group, the query heads of one KV head.
struct Piece {
    const Group* group;
    size_t row, rows, kv_head;
    size_t blocks() const { return ceil_div(group->position + row + rows, kKeyBlock); }
};

std::vector<Piece> pieces_of(const std::vector<Group>& groups, const Heads& heads) {
    std::vector<Piece> pieces;
    const size_t chunk = heads.chunk_rows();
    for (const Group& group : groups)
        for (size_t row = 0; row < group.rows; row += chunk)
            for (size_t h = 0; h < heads.kv; ++h)
                pieces.push_back({&group, row, std::min(chunk, group.rows - row), h});
    return pieces;
}

// The job of a piece, with the arrays that it points to; scratch, and room for two pointers a block.
struct PieceJob {
    const float* q[kMostQueries];
    float* out[kMostQueries];
    int32_t visible[kMostQueries];
    AttendJob job;

    PieceJob(const Op& op, const Frame& frame, const Piece& piece, const Piece& later,
             float* scratch, const void** blocks) {
        const Heads heads(op);
        const Group& group = *piece.group;
        size_t queries = 0;
        for (size_t r = piece.row; r < piece.row + piece.rows; ++r) {
            for (size_t g = 0; g < heads.group(); ++g, ++queries) {
                size_t start = (piece.kv_head * heads.group() + g) * heads.dim;
                q[queries] = frame.row(op.inputs[0], group.row + r) + start;
                out[queries] = frame.row_out(op.output, group.row + r) + start;
                visible[queries] = int32_t(group.position + r + 1);
            }
        }
        const KvCache& cache = *group.cache;
        const size_t n = piece.blocks();
        for (size_t b = 0; b < n; ++b) {
            blocks[b] = cache.key_tile(heads.layer, piece.kv_head, b * kKeyBlock);
            blocks[n + b] = cache.value_row(heads.layer, piece.kv_head, b * kKeyBlock);
        }
        job = {cache.type(), heads.dim, cache.v_stride(), queries, q,          out,
               visible,      1.0f / std::sqrt(float(heads.dim)), n, blocks, blocks + n, scratch,
               later.group->cache->key_tile(heads.layer, later.kv_head, 0)};
    }
    PieceJob(const PieceJob&) = delete;
    PieceJob& operator=(const PieceJob&) = delete;
};

// Attention of the pieces of a run, on all threads.
class Attention {
public:
    Attention(const Op& op, const Frame& frame, const std::vector<Group>& groups)
        : op_(op), frame_(frame), pieces_(pieces_of(groups, Heads(op))) {
        for (const Piece& piece : pieces_) {
            most_queries_ = std::max(most_queries_, piece.rows * Heads(op).group());
            most_blocks_ = std::max(most_blocks_, piece.blocks());
        }
        floats_ = round_up(attend_scratch_floats(most_queries_, Heads(op).dim), kTile);
        scratch_ = frame.engine.per_thread(floats_ * 4 + 2 * most_blocks_ * sizeof(void*));
    }

    // Few long pieces, as in a decode step, leave threads without work: these share their blocks.
    void run() {
        const size_t threads = size_t(frame_.engine.pool().threads());
        const bool uneven = pieces_.size() % threads && pieces_.size() < 4 * threads;
        if (uneven && most_blocks_ > 1 && most_queries_ <= kSplitQueries)
            run_blocks();
        else
            run_pieces();
    }

private:
    static constexpr size_t kSplitQueries = 16;  // bounds the memory of partial results

    template <class Body>
    void with_job(size_t piece, int thread, const Body& body) const {
        float* memory = scratch_.of(thread);
        const size_t later = piece + size_t(frame_.engine.pool().threads());
        const PieceJob job(op_, frame_, pieces_[piece], pieces_[std::min(later, pieces_.size() - 1)],
                           memory, reinterpret_cast<const void**>(memory + floats_));
        body(job.job);
    }

    void run_pieces() const {
        const Kernels& kernels = frame_.engine.kernels();
        frame_.engine.pool().parallel(pieces_.size(), 1, [&](size_t i, size_t, int thread) {
            with_job(i, thread, [&](const AttendJob& job) { kernels.attend(job); });
        });
    }

    void run_blocks() const {
        const Kernels& kernels = frame_.engine.kernels();
        const size_t stride = attend_partial_floats(most_queries_, Heads(op_).dim);
        auto* partials = reinterpret_cast<float*>(
            frame_.engine.partials(pieces_.size() * most_blocks_ * stride * sizeof(float)));
        const size_t wanted = 4 * size_t(frame_.engine.pool().threads());
        const size_t span = ceil_div(most_blocks_, ceil_div(wanted, pieces_.size()));
        const size_t spans = ceil_div(most_blocks_, span);
        frame_.engine.pool().parallel(pieces_.size() * spans, 1, [&](size_t i, size_t, int thread) {
            with_job(i / spans, thread, [&](const AttendJob& job) {
                const size_t first = i % spans * span, last = std::min(first + span, job.blocks);
                float* results = partials + i / spans * most_blocks_ * stride;
                for (size_t block = first; block < last; ++block)
                    kernels.attend_block(job, block, results + block * stride);
            });
        });
        frame_.engine.pool().parallel(pieces_.size(), 1, [&](size_t i, size_t, int thread) {
            with_job(i, thread, [&](const AttendJob& job) {
                kernels.attend_join(job, partials + i * most_blocks_ * stride, stride);
            });
        });
    }

    const Op& op_;
    const Frame& frame_;
    std::vector<Piece> pieces_;
    size_t most_queries_ = 1, most_blocks_ = 1, floats_ = 0;
    Engine::PerThread scratch_;
};

void run_cached_attention(const Op& op, const Frame& frame) {
    const std::vector<Group> groups = groups_of(op, frame);
    for (const Group& group : groups) {
        group.cache->writing(group.position);
        store_rows(op, frame, group);
    }
    Attention(op, frame, groups).run();
    for (const Group& group : groups) group.cache->written(group.position + group.rows);
}

// window_attention: q, k, v [rows, heads * d], starts i32, ends i32 -> [rows, heads * d]. A row
// attends to all rows starts[r] .. ends[r] - 1; windows are consecutive runs of rows.
// ints: heads, head_dim
void check_window_attention(const Plan& plan, const Op& op) {
    for (int64_t value : op.ints) need(op, value > 0 && value < 65536, "a size is out of range");
    for (size_t i = 0; i < 5; ++i) need_same_rows(plan, op, op.inputs[i], op.output);
    size_t width = size_t(op.ints[0] * op.ints[1]);
    need_widths(op, {op.inputs[0].width, op.inputs[1].width, op.inputs[2].width, op.output.width},
                width);
    need_ints(plan, op, 3);
    need_ints(plan, op, 4);
}

void check_run_window_attention(const Op& op, const Frame& frame) { check_windows(op, frame, 3); }

struct Window {
    size_t row, rows;
};

// The keys and values of one head of a window, laid out as in a cache: [blocks of 256 keys].
struct PackedWindow {
    float *keys, *values, *scratch;
    const void** pointers;
    size_t dim, padded, blocks;
    static size_t floats(size_t rows, size_t dim) {
        size_t padded = round_up(rows, kKeyBlock);
        return padded * (dim + round_up(dim, kTile)) + 4 * ceil_div(rows, kKeyBlock) + 16 +
               attend_scratch_floats(kChunkQueries, dim);
    }
    PackedWindow(float* memory, size_t rows, size_t head_dim)
        : dim(head_dim), padded(round_up(head_dim, kTile)), blocks(ceil_div(rows, kKeyBlock)) {
        pointers = reinterpret_cast<const void**>(memory);
        keys = memory + 4 * blocks;
        values = keys + blocks * kKeyBlock * dim;
        scratch = values + blocks * kKeyBlock * padded;
        for (size_t b = 0; b < blocks; ++b) {
            pointers[b] = keys + b * kKeyBlock * dim;
            pointers[blocks + b] = values + b * kKeyBlock * padded;
        }
    }
    void store(const Kernels& kernels, const float* k, const float* v, size_t row) const {
        float* tile = keys + row / kKeyTile * dim * kKeyTile;
        kernels.store_key(KvType::f32, k, dim, tile, row % kKeyTile);
        std::memcpy(values + row * padded, v, dim * sizeof(float));
    }
};

void attend_window(const Op& op, const Frame& frame, const Window& window, size_t head,
                   float* memory) {
    const size_t dim = size_t(op.ints[1]), start = head * dim;
    PackedWindow packed(memory, window.rows, dim);
    for (size_t r = 0; r < window.rows; ++r)
        packed.store(frame.engine.kernels(), frame.row(op.inputs[1], window.row + r) + start,
                     frame.row(op.inputs[2], window.row + r) + start, r);
    const float* q[kChunkQueries];
    float* out[kChunkQueries];
    int32_t visible[kChunkQueries];
    for (size_t first = 0; first < window.rows; first += kChunkQueries) {
        size_t queries = std::min(kChunkQueries, window.rows - first);
        for (size_t i = 0; i < queries; ++i) {
            q[i] = frame.row(op.inputs[0], window.row + first + i) + start;
            out[i] = frame.row_out(op.output, window.row + first + i) + start;
            visible[i] = int32_t(window.rows);
        }
        AttendJob job{KvType::f32,     dim,     packed.padded, queries, q, out, visible,
                      1.0f / std::sqrt(float(dim)), packed.blocks, packed.pointers,
                      packed.pointers + packed.blocks, packed.scratch, packed.keys};
        frame.engine.kernels().attend(job);
    }
}

void run_window_attention(const Op& op, const Frame& frame) {
    const int32_t* end = frame.ints(op.inputs[4]);
    std::vector<Window> windows;
    size_t longest = 1;
    for (size_t r = 0, n = frame.rows(op.output); r < n; r = size_t(end[r])) {
        windows.push_back({r, size_t(end[r]) - r});
        longest = std::max(longest, windows.back().rows);
    }
    const size_t heads = size_t(op.ints[0]);
    auto scratch = frame.engine.per_thread(PackedWindow::floats(longest, size_t(op.ints[1])) * 4);
    frame.engine.pool().parallel(windows.size() * heads, 1, [&](size_t first, size_t last, int t) {
        for (size_t i = first; i < last; ++i)
            attend_window(op, frame, windows[i / heads], i % heads, scratch.of(t));
    });
}

}  // namespace

void check_windows(const Op& op, const Frame& frame, size_t first) {
    const int32_t* start = frame.ints(op.inputs[first]);
    const int32_t* end = frame.ints(op.inputs[first + 1]);
    const size_t n = frame.rows(op.output);
    for (size_t r = 0; r < n; ++r) {
        bool inside = start[r] >= 0 && size_t(start[r]) <= r && end[r] > 0 && r < size_t(end[r]) &&
                      size_t(end[r]) <= n;
        bool opens = size_t(start[r]) == r && (!r || size_t(end[r - 1]) == r);
        bool goes_on = r && start[r] == start[r - 1] && end[r] == end[r - 1];
        if (!inside || !(opens || goes_on)) refuse_row(op, r, "its window is no run of rows around it");
    }
}

const OpKind kCachedAttention{"cached_attention", 5, 2, 0, 0, 4, 0, check_cached_attention,
                              check_run_cached_attention, run_cached_attention};
const OpKind kWindowAttention{"window_attention", 5, 2, 0, 0, 2, 0, check_window_attention,
                              check_run_window_attention, run_window_attention};

}  // namespace stapes
