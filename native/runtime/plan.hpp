// A plan: a flat list of ops over named buffers, built once per model, run for any number of rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine.hpp"
#include "kv_cache.hpp"

namespace stapes {

// Row r of a view starts at element r * stride + start of its buffer and is `width` wide. A plan has
// a few row dimensions ("rows", "injected" ...), whose sizes are given with each run; the view has
// per_row rows for each of its dimension's.
struct View {
    int buffer;
    size_t per_row, stride, start, width;
};

enum class Element : int { f32 = 0, i32 = 1 };

// slot < 0: the caller gives the memory with each run; else buffers of one slot share memory.
struct Buffer {
    std::string name;
    Element element;
    int dim;
    size_t row_elements;  // elements for each row of the dimension
    int slot;
};

struct Matrix {
    Format format;
    size_t out, in;
    const uint8_t* data;
    int peak;  // of the activations that it is multiplied by, when it is quantised
};

struct Vector {
    const float* data;
    size_t size;
};

struct OpDescription {
    std::string kind;
    std::vector<View> inputs;
    View output;
    std::vector<int> matrices, vectors;
    std::vector<int64_t> ints;
    std::vector<double> floats;
};

struct OpKind;

struct Op : OpDescription {
    const OpKind* implementation = nullptr;
};

class Plan;

// One run: where each buffer lies, how many rows each dimension has, and the caches of its sequences.
struct Frame {
    const Plan& plan;
    Engine& engine;
    std::vector<size_t> counts;
    std::vector<void*> buffers;
    std::vector<KvCache*> caches;

    size_t rows(const View& view) const;
    const float* row(const View& view, size_t r) const;
    float* row_out(const View& view, size_t r) const;
    const int32_t* ints(const View& view) const;
};

struct OpKind {
    const char* name;
    size_t inputs, indices;                          // the last `indices` of the inputs are i32
    size_t matrices, vectors, ints, floats;          // vectors: at most
    void (*check)(const Plan&, const Op&);           // when the plan is built: invalid_argument
    void (*check_run)(const Op&, const Frame&);      // before a run: out_of_range; may be null
    void (*run)(const Op&, const Frame&);
    Element gives = Element::f32;
};

const OpKind* find_op(const std::string& name);

class Plan {
public:
    Plan(std::vector<std::string> dims, std::vector<Buffer> buffers,
         const std::vector<OpDescription>& ops, std::vector<Matrix> matrices,
         std::vector<Vector> vectors);

    // memory: one pointer and its size in elements for each buffer with slot < 0, in their order.
    struct Memory {
        void* data;
        size_t elements;
        Element element;
    };
    // end_times: room for one number an op, nanoseconds of the steady clock at its end; may be null.
    void run(Engine& engine, const std::vector<size_t>& counts, const std::vector<Memory>& memory,
             const std::vector<KvCache*>& caches, int64_t* end_times = nullptr) const;
    size_t op_count() const { return ops_.size(); }

    const Matrix& matrix(const Op& op, size_t i) const { return matrices_[size_t(op.matrices[i])]; }
    const Vector& vector(const Op& op, size_t i) const { return vectors_[size_t(op.vectors[i])]; }
    const Buffer& buffer(const View& view) const { return buffers_[size_t(view.buffer)]; }
    const std::vector<std::string>& dims() const { return dims_; }

private:
    void check_view(const Op& op, const View& view) const;
    void check_op(const Op& op) const;
    void check_elements(const Op& op) const;
    void check_overlap(const Op& op) const;
    void find_indices();
    void place_buffers(Frame& frame, const std::vector<Memory>& memory) const;
    void keep_indices(Frame& frame, size_t buffer, uint8_t* copy) const;

    std::vector<std::string> dims_;
    std::vector<Buffer> buffers_;
    std::vector<bool> indices_;  // for each buffer: an op takes its content for indices
    std::vector<Op> ops_;
    std::vector<Matrix> matrices_;
    std::vector<Vector> vectors_;
};

}  // namespace stapes
