// The Python module stapes._native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <map>
#include <memory>
#include <stdexcept>

#include "runtime/plan.hpp"

namespace nb = nanobind;
using namespace stapes;

namespace {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using EndTimes = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using AnyArray = nb::ndarray<nb::c_contig, nb::device::cpu>;

void need_aligned(const void* data, size_t bytes, const char* what) {
    if (reinterpret_cast<uintptr_t>(data) % bytes)
        throw std::invalid_argument(std::string(what) + ": an array is not aligned to its words");
}

template <class Enum>
Enum named(const std::map<std::string, Enum>& names, const std::string& name, const char* what) {
    auto found = names.find(name);
    if (found == names.end()) throw std::invalid_argument(std::string(what) + ": unknown " + name);
    return found->second;
}

Format format_named(const std::string& name) {
    return named<Format>({{"f32", Format::f32}, {"bf16", Format::bf16}, {"q8", Format::q8}, {"q4", Format::q4}}, name,
                         "weight format");
}

KvType kv_named(const std::string& name) {
    return named<KvType>({{"f32", KvType::f32}, {"f16", KvType::f16}, {"bf16", KvType::bf16}}, name,
                         "storage type");
}

size_t packed_bytes(const std::string& format, size_t out, size_t in) {
    if (!out || !in || out > (1u << 30) || in > (1u << 30))
        throw std::invalid_argument("a matrix has an impossible shape");
    return ceil_div(out, kTile) * tile_bytes(format_named(format), in);
}

// A matrix of packed tiles in memory that Python owns.
struct PyMatrix {
    std::string format;
    size_t out, in;
    ConstBytes data;
    PyMatrix(std::string format_, size_t out_, size_t in_, ConstBytes data_)
        : format(std::move(format_)), out(out_), in(in_), data(std::move(data_)) {
        if (data.size() != packed_bytes(format, out, in))
            throw std::invalid_argument("a packed matrix has the wrong number of bytes");
        need_aligned(data.data(), format == "f32" ? 4 : 2, "a packed matrix");
    }
    Matrix view(int q8_peak = kFinePeak) const {
        return {format_named(format), out, in, data.data(), format == "q8" ? q8_peak : kBytePeak};
    }
};

using ViewTuple = std::tuple<int, size_t, size_t, size_t, size_t>;
using BufferTuple = std::tuple<std::string, std::string, int, size_t, int>;
using OpTuple = std::tuple<std::string, std::vector<ViewTuple>, ViewTuple, std::vector<int>,
                           std::vector<int>, std::vector<int64_t>, std::vector<double>>;

View to_view(const ViewTuple& t) {
    return {std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t), std::get<4>(t)};
}

Buffer to_buffer(const BufferTuple& t) {
    Element element = named<Element>({{"f32", Element::f32}, {"i32", Element::i32}}, std::get<1>(t),
                                     "element type");
    return {std::get<0>(t), element, std::get<2>(t), std::get<3>(t), std::get<4>(t)};
}

OpDescription to_op(const OpTuple& t) {
    OpDescription op;
    op.kind = std::get<0>(t);
    for (const ViewTuple& view : std::get<1>(t)) op.inputs.push_back(to_view(view));
    op.output = to_view(std::get<2>(t));
    op.matrices = std::get<3>(t);
    op.vectors = std::get<4>(t);
    op.ints = std::get<5>(t);
    op.floats = std::get<6>(t);
    return op;
}

// The largest activation beside q8 weights, which has a sign and these bits less one.
int peak_of(int activation_bits) {
    if (activation_bits == 13) return kFinePeak;
    if (activation_bits == 9) return kCoarsePeak;
    throw std::invalid_argument("activations have 13 bits or 9");
}

// A plan together with the arrays that its matrices and vectors live in.
struct PyPlan {
    std::vector<PyMatrix> matrices;
    std::vector<Floats> vectors;
    std::unique_ptr<Plan> plan;

    PyPlan(std::vector<std::string> dims, const std::vector<BufferTuple>& buffer_tuples,
           const std::vector<OpTuple>& op_tuples, std::vector<PyMatrix> matrices_,
           std::vector<Floats> vectors_, int activation_bits)
        : matrices(std::move(matrices_)), vectors(std::move(vectors_)) {
        std::vector<Buffer> buffers;
        std::vector<OpDescription> ops;
        std::vector<Matrix> matrix_views;
        std::vector<Vector> vector_views;
        for (const BufferTuple& t : buffer_tuples) buffers.push_back(to_buffer(t));
        for (const OpTuple& t : op_tuples) ops.push_back(to_op(t));
        const int q8_peak = peak_of(activation_bits);
        for (const PyMatrix& m : matrices) matrix_views.push_back(m.view(q8_peak));
        for (const Floats& v : vectors) {
            need_aligned(v.data(), sizeof(float), "plan");
            vector_views.push_back({v.data(), v.size()});
        }
        plan = std::make_unique<Plan>(std::move(dims), std::move(buffers), ops,
                                      std::move(matrix_views), std::move(vector_views));
    }

    static Plan::Memory memory_of(const AnyArray& array) {
        need_aligned(array.data(), 4, "plan");
        if (array.dtype() == nb::dtype<float>())
            return {array.data(), array.size(), Element::f32};
        if (array.dtype() == nb::dtype<int32_t>())
            return {array.data(), array.size(), Element::i32};
        throw std::invalid_argument("plan: arrays are float32 or int32");
    }

    void run(Engine& engine, const std::vector<size_t>& counts, const std::vector<AnyArray>& arrays,
             const std::vector<KvCache*>& caches, std::optional<EndTimes> end_times) const {
        if (end_times && end_times->size() != plan->op_count())
            throw std::invalid_argument("plan: end_times needs one number for each op");
        std::vector<Plan::Memory> memory;
        for (const AnyArray& array : arrays) memory.push_back(memory_of(array));
        for (const KvCache* cache : caches)
            if (!cache) throw std::invalid_argument("plan: a cache is None");
        nb::gil_scoped_release release;
        plan->run(engine, counts, memory, caches, end_times ? end_times->data() : nullptr);
    }
};

// Rows [out][in] of f32, f16 or bf16 words, packed into tiles. False when a value is not finite.
bool pack(Engine& engine, const std::string& format, const std::string& source_type, size_t out,
          size_t in, ConstBytes source, Bytes packed) {
    const Format target = format_named(format);
    const KvType type = kv_named(source_type);
    const size_t row_bytes = in * (type == KvType::f32 ? 4 : 2), bytes = tile_bytes(target, in);
    if (packed.size() != packed_bytes(format, out, in) || source.size() != out * row_bytes)
        throw std::invalid_argument("pack: the arrays do not fit the shape");
    need_aligned(source.data(), type == KvType::f32 ? 4 : 2, "pack");
    need_aligned(packed.data(), target == Format::f32 ? 4 : 2, "pack");
    nb::gil_scoped_release release;
    auto lock = engine.lock();
    auto scratch = engine.per_thread(kTile * in * sizeof(float));
    std::atomic<bool> finite{true};
    engine.pool().parallel(ceil_div(out, kTile), 4, [&](size_t first, size_t last, int t) {
        const float* rows[kTile];
        for (size_t tile = first; tile < last; ++tile) {
            size_t outputs = std::min<size_t>(kTile, out - tile * kTile);
            for (size_t o = 0; o < outputs; ++o) {
                float* row = scratch.of(t) + o * in;
                engine.kernels().widen(type, source.data() + (tile * kTile + o) * row_bytes, in, row);
                rows[o] = row;
            }
            if (!engine.kernels().pack_tile(target, rows, outputs, in, packed.data() + tile * bytes))
                finite = false;
        }
    });
    return finite;
}

// Row `row` of a packed matrix, dequantised, into y [in].
void unpack_row(Engine& engine, const PyMatrix& matrix, size_t row,
                nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu> y) {
    if (row >= matrix.out || y.size() != matrix.in)
        throw std::invalid_argument("unpack_row: no such row, or y has the wrong length");
    Matrix m = matrix.view();
    engine.kernels().unpack_row(m.format, m.data, m.in, row, y.data());
}

// The sum of an array on all threads, in parts of 256 KB.
double stream_sum(Engine& engine, Floats array) {
    constexpr size_t kPart = 1 << 16;
    nb::gil_scoped_release release;
    auto lock = engine.lock();
    std::vector<double> sums(size_t(engine.pool().threads()), 0.0);
    engine.pool().parallel(array.size() / kPart, 4, [&](size_t first, size_t last, int t) {
        sums[size_t(t)] +=
            double(engine.kernels().stream_sum(array.data() + first * kPart, (last - first) * kPart));
    });
    double total = 0;
    for (double sum : sums) total += sum;
    return total;
}

}  // namespace

NB_MODULE(_native, m) {
    // noconvert: a converted array would be a copy, and what is written to it lost.
    // What other modules still hold when the interpreter ends is no leak that a user could mend.
    nb::set_leak_warnings(false);
    m.doc() = "The native core: plans, kernels, threads. No model names, no files, no policy.";
    m.def("instruction_sets", &instruction_sets,
          "Names of the instruction sets this processor can run, best first.");
    m.def("packed_bytes", &packed_bytes, nb::arg("format"), nb::arg("out"), nb::arg("in_"));
    m.def("pack", &pack, nb::arg("engine"), nb::arg("format"), nb::arg("source_type"),
          nb::arg("out"), nb::arg("in_"), nb::arg("source").noconvert(),
          nb::arg("packed").noconvert());
    m.def("unpack_row", &unpack_row, nb::arg("engine"), nb::arg("matrix"), nb::arg("row"),
          nb::arg("y").noconvert());
    m.def("stream_sum", &stream_sum, nb::arg("engine"), nb::arg("array"),
          "Sum of an array but for a tail, to measure the speed of memory.");
    m.attr("PAGE_POSITIONS") = kPagePositions;

    nb::class_<Engine>(m, "Engine")
        .def(nb::init<int, const std::string&>(), nb::arg("threads"),
             nb::arg("instruction_set") = "auto", nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("threads", [](Engine& e) { return e.pool().threads(); })
        .def_prop_ro("instruction_set", [](Engine& e) { return e.kernels().name; });

    nb::class_<PyMatrix>(m, "Matrix")
        .def(nb::init<std::string, size_t, size_t, ConstBytes>(), nb::arg("format"), nb::arg("out"),
             nb::arg("in_"), nb::arg("data").noconvert())
        .def_ro("format", &PyMatrix::format)
        .def_ro("out", &PyMatrix::out)
        .def_ro("in_", &PyMatrix::in);

    nb::class_<KvCache>(m, "KvCache")
        .def("__init__",
             [](KvCache* self, size_t layers, size_t kv_heads, size_t head_dim,
                const std::string& type) {
                 new (self) KvCache(layers, kv_heads, head_dim, kv_named(type));
             },
             nb::arg("layers"), nb::arg("kv_heads"), nb::arg("head_dim"), nb::arg("type"))
        .def_prop_ro("length", &KvCache::length)
        .def_prop_ro("capacity", &KvCache::capacity)
        .def_prop_ro("page_bytes", &KvCache::page_bytes)
        .def("reserve", &KvCache::reserve, nb::arg("positions"))
        .def("truncate", &KvCache::truncate, nb::arg("length"))
        .def("clone", &KvCache::clone);

    nb::class_<PyPlan>(m, "Plan")
        .def(nb::init<std::vector<std::string>, const std::vector<BufferTuple>&,
                      const std::vector<OpTuple>&, std::vector<PyMatrix>, std::vector<Floats>, int>(),
             nb::arg("dims"), nb::arg("buffers"), nb::arg("ops"), nb::arg("matrices"),
             nb::arg("vectors"), nb::arg("activation_bits") = 13)
        .def("run", &PyPlan::run, nb::arg("engine"), nb::arg("counts"),
             nb::arg("arrays").noconvert(), nb::arg("caches"),
             nb::arg("end_times").noconvert() = nb::none());
}
