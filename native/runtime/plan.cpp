#include "plan.hpp"

#include <cstring>
#include <chrono>
#include <stdexcept>

namespace stapes {

namespace {

constexpr size_t kMostElements = size_t(1) << 40;  // keeps every product of sizes far from overflow

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

int64_t now_ns() {
    auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

bool in_range(int index, size_t size) { return index >= 0 && size_t(index) < size; }

void check_matrix(const Matrix& matrix) {
    if (!matrix.out || !matrix.in || matrix.out > (1u << 30) || matrix.in > (1u << 30))
        refuse("plan: a matrix has an impossible shape");
}

}  // namespace

size_t Frame::rows(const View& view) const {
    return counts[size_t(plan.buffer(view).dim)] * view.per_row;
}

const float* Frame::row(const View& view, size_t r) const {
    return static_cast<const float*>(buffers[size_t(view.buffer)]) + r * view.stride + view.start;
}

float* Frame::row_out(const View& view, size_t r) const {
    return static_cast<float*>(buffers[size_t(view.buffer)]) + r * view.stride + view.start;
}

const int32_t* Frame::ints(const View& view) const {
    return static_cast<const int32_t*>(buffers[size_t(view.buffer)]);
}

Plan::Plan(std::vector<std::string> dims, std::vector<Buffer> buffers,
           const std::vector<OpDescription>& ops, std::vector<Matrix> matrices,
           std::vector<Vector> vectors)
    : dims_(std::move(dims)),
      buffers_(std::move(buffers)),
      matrices_(std::move(matrices)),
      vectors_(std::move(vectors)) {
    for (const Buffer& buffer : buffers_)
        if (!in_range(buffer.dim, dims_.size()) || !buffer.row_elements ||
            buffer.row_elements > kMostElements || buffer.slot > int(buffers_.size()))
            refuse("plan: buffer " + buffer.name + " is malformed");
    for (const Matrix& matrix : matrices_) check_matrix(matrix);
    for (const OpDescription& description : ops) {
        Op op{description};
        op.implementation = find_op(op.kind);
        if (!op.implementation) refuse("plan: unknown op " + op.kind);
        check_op(op);
        ops_.push_back(std::move(op));
    }
    find_indices();
}

// Indices are checked before a run: so the caller gives them, and no op of the plan makes them.
void Plan::find_indices() {
    indices_.assign(buffers_.size(), false);
    for (const Op& op : ops_)
        for (size_t i = op.inputs.size() - op.implementation->indices; i < op.inputs.size(); ++i) {
            indices_[size_t(op.inputs[i].buffer)] = true;
            if (buffer(op.inputs[i]).slot >= 0) refuse(op.kind + ": indices are no input of the plan");
        }
    for (const Op& op : ops_)
        if (indices_[size_t(op.output.buffer)]) refuse(op.kind + ": writes over indices");
}

void Plan::check_view(const Op& op, const View& view) const {
    if (!in_range(view.buffer, buffers_.size())) refuse(op.kind + ": no such buffer");
    const Buffer& buffer = this->buffer(view);
    if (!view.width || !view.per_row || view.stride > kMostElements || view.start > kMostElements ||
        view.width > kMostElements || view.start + view.width > view.stride ||
        view.per_row > kMostElements || view.stride > buffer.row_elements / view.per_row)
        refuse(op.kind + ": a view reaches outside buffer " + buffer.name);
}

void Plan::check_op(const Op& op) const {
    const OpKind& kind = *op.implementation;
    if (op.inputs.size() != kind.inputs || op.matrices.size() != kind.matrices ||
        op.vectors.size() > kind.vectors || op.ints.size() != kind.ints ||
        op.floats.size() != kind.floats)
        refuse(op.kind + ": wrong number of operands");
    for (const View& view : op.inputs) check_view(op, view);
    check_view(op, op.output);
    for (int index : op.matrices)
        if (!in_range(index, matrices_.size())) refuse(op.kind + ": no such matrix");
    for (int index : op.vectors)
        if (!in_range(index, vectors_.size())) refuse(op.kind + ": no such vector");
    check_elements(op);
    check_overlap(op);
    kind.check(*this, op);
}

void Plan::check_elements(const Op& op) const {
    const size_t floats = op.inputs.size() - op.implementation->indices;
    for (size_t i = 0; i < op.inputs.size(); ++i)
        if (buffer(op.inputs[i]).element != (i < floats ? Element::f32 : Element::i32))
            refuse(op.kind + ": an operand has the wrong element type");
    if (buffer(op.output).element != op.implementation->gives)
        refuse(op.kind + ": the output has the wrong element type");
}

void Plan::check_overlap(const Op& op) const {
    const int slot = buffer(op.output).slot;
    for (const View& view : op.inputs)
        if (view.buffer == op.output.buffer || (slot >= 0 && buffer(view).slot == slot))
            refuse(op.kind + ": writes over what it reads");
}

void Plan::place_buffers(Frame& frame, const std::vector<Memory>& memory) const {
    std::vector<size_t> slot_bytes(buffers_.size() + 1, 0);
    size_t given = 0;
    for (size_t i = 0; i < buffers_.size(); ++i) {
        const Buffer& buffer = buffers_[i];
        size_t count = frame.counts[size_t(buffer.dim)];
        if (count > kMostElements / buffer.row_elements)
            refuse("plan: buffer " + buffer.name + " is too large");
        size_t elements = count * buffer.row_elements;
        if (buffer.slot >= 0) {
            size_t& bytes = slot_bytes[size_t(buffer.slot)];
            bytes = std::max(bytes, round_up(elements * 4, 64));
            continue;
        }
        if (given == memory.size()) refuse("plan: no memory given for buffer " + buffer.name);
        const Memory& m = memory[given++];
        if (m.elements != elements || m.element != buffer.element)
            refuse("plan: buffer " + buffer.name + " needs " + std::to_string(elements) +
                   " elements, got " + std::to_string(m.elements) + " or another type");
        frame.buffers[i] = m.data;
    }
    if (given != memory.size()) refuse("plan: more memory given than buffers");
    std::vector<size_t> slot_start(slot_bytes.size(), 0);
    size_t total = 0;
    for (size_t slot = 0; slot < slot_bytes.size(); ++slot) {
        slot_start[slot] = total;
        total += slot_bytes[slot];
    }
    std::vector<size_t> index_start(buffers_.size(), 0);
    for (size_t i = 0; i < buffers_.size(); ++i)
        if (indices_[i]) {
            index_start[i] = total;
            total += round_up(frame.counts[size_t(buffers_[i].dim)] * buffers_[i].row_elements * 4, 64);
        }
    uint8_t* base = frame.engine.workspace(total);
    for (size_t i = 0; i < buffers_.size(); ++i) {
        if (buffers_[i].slot >= 0) frame.buffers[i] = base + slot_start[size_t(buffers_[i].slot)];
        if (indices_[i]) keep_indices(frame, i, base + index_start[i]);
    }
}

// A copy: what was checked is what is read, whatever other threads do to the caller's array.
void Plan::keep_indices(Frame& frame, size_t i, uint8_t* copy) const {
    size_t bytes = frame.counts[size_t(buffers_[i].dim)] * buffers_[i].row_elements * 4;
    if (bytes) std::memcpy(copy, frame.buffers[i], bytes);
    frame.buffers[i] = copy;
}

void Plan::run(Engine& engine, const std::vector<size_t>& counts, const std::vector<Memory>& memory,
               const std::vector<KvCache*>& caches, int64_t* end_times) const {
    if (counts.size() != dims_.size()) refuse("plan: one count for each dimension is needed");
    for (size_t count : counts)
        if (count > (size_t(1) << 31)) refuse("plan: too many rows");
    auto lock = engine.lock();
    std::vector<KvCache::Use> uses;
    uses.reserve(caches.size());
    for (KvCache* cache : caches) uses.emplace_back(*cache);
    Frame frame{*this, engine, counts, std::vector<void*>(buffers_.size()), caches};
    place_buffers(frame, memory);
    for (const Op& op : ops_)
        if (op.implementation->check_run) op.implementation->check_run(op, frame);
    for (const Op& op : ops_) {
        op.implementation->run(op, frame);
        if (end_times) *end_times++ = now_ns();
    }
    for (KvCache::Use& use : uses) use.finish();
}

}  // namespace stapes
