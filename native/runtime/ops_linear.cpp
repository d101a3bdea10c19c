// linear: a matrix in packed tiles.
#include "linear_job.hpp"

namespace stapes {

namespace {

constexpr size_t kGrainBytes = 64 * 1024;  // packed weights handed to a thread at a time, few rows
// Of very many rows so many pass through all tiles before the next ones: they are read again for every
// tile, from the caches. 2304 rows at once are a tenth to a sixth slower.
constexpr size_t kRowsTogether = 384;

// linear: x [rows, in], matrix [out, in], bias [out] or none; ints: activation
void check_linear(const Plan& plan, const Op& op) {
    need_same_rows(plan, op, op.inputs[0], op.output);
    need(op, plan.matrix(op, 0).in == op.inputs[0].width, "the matrix does not fit the input");
    check_epilogue(plan, op, 0);
}

// Tiles handed to a thread at a time, many rows: so few that all end together, so many that most of
// those which the kernels fetch ahead are the thread's own.
size_t shared_grain(size_t tiles, int threads) {
    return std::clamp(tiles / (size_t(threads) * 4) / kTilesTogether, size_t(1), size_t(4)) *
           kTilesTogether;
}

void run_linear(const Op& op, const Frame& frame) {
    const Matrix& w = frame.plan.matrix(op, 0);
    const View& x = op.inputs[0];
    Engine& engine = frame.engine;
    const size_t rows = frame.rows(x);
    if (!rows) return;
    LinearJob job = job_for(w, op, frame, 0);
    job.rows = rows;
    job.x = frame.row(x, 0), job.x_stride = x.stride;
    job.y = frame.row_out(op.output, 0);
    if (is_quantized(w.format)) {
        Quantized quantized(w.peak, engine.activations(Quantized::size(rows, w.in)), rows, w.in);
        engine.pool().parallel(rows, 8, [&](size_t first, size_t last, int) {
            for (size_t r = first; r < last; ++r)
                quantized.row(engine.kernels(), frame.row(x, r), w.in, r);
        });
        job.xq = quantized.rows();
    }
    auto scratch = engine.per_thread(kLinearScratchFloats * sizeof(float));
    size_t bytes = tile_bytes(w.format, w.in);
    const size_t least = rows > kOneTileRows ? kTilesTogether : 1;
    const size_t grain = rows > 8 ? shared_grain(ceil_div(w.out, kTile), engine.pool().threads())
                                  : std::max(least, kGrainBytes / bytes);
    const size_t tiles = ceil_div(w.out, kTile), parts = ceil_div(rows, kRowsTogether);
    if (parts == 1)
        return engine.pool().parallel(tiles, grain, [&](size_t first, size_t last, int t) {
            engine.kernels().linear_tiles(job, first, last, scratch.of(t));
        });
    const size_t panels = ceil_div(tiles, kTilesTogether);
    engine.pool().parallel(parts * panels, 1, [&](size_t item, size_t, int t) {
        const size_t row = item / panels * kRowsTogether, tile = item % panels * kTilesTogether;
        engine.kernels().linear_tiles(rows_of(job, row, std::min(kRowsTogether, rows - row)), tile,
                                      std::min(tile + kTilesTogether, tiles), scratch.of(t));
    });
}

}  // namespace

const OpKind kLinear{"linear", 1, 0, 1, 1, 1, 0, check_linear, nullptr, run_linear};

}  // namespace stapes
