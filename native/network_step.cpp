// SPDX-License-Identifier: Apache-2.0
// Rows are independent until their gradients are added up: threads take rows through the whole graph and
// back, meet once, and share the features to move.
#include "network_step.h"

#include <cmath>

namespace steepest {
namespace {

enum Clock { kSteps, kPath };

class Step {
 public:
  Step(const Network& network, const Lesson& lesson, int64_t n_threads)
      : net_(network),
        lesson_(lesson),
        kernels_(network_kernels()),
        n_threads_(n_threads),
        bytes_(network.type ? 8 : 4),
        factor_(lesson.batch_size),
        losses_(lesson.batch_size) {
    for (const Station& station : net_.stations) {
      for (auto* buffers : {&z_, &h_, &slope_, &extra_})
        buffers->emplace_back(lesson.batch_size * station.size * bytes_);
    }
    for (size_t e = 0; e < net_.wires.size(); ++e) {
      const int64_t size =
          is_from_input(e) ? 0 : net_.weights[e].shape.n_features * net_.weights[e].shape.row_bytes();
      transposed_.emplace_back(size);
      gradient_.emplace_back(size);
    }
  }

  Stop learn() {
    const int64_t n = lesson_.rows.n, size = lesson_.batch_size;
    for (int64_t batch = 0, first = 0; first < n; ++batch, first += size) {
      const Rows rows = rows_between(lesson_.rows, first, std::min(first + size, n));
      const int64_t done = pass(rows, first);
      if (done < rows.n) return {batch, first + done};
      const double total = lesson_.totals[batch] = add_up(first, rows.n);
      if (!std::isfinite(total)) return {batch, -1};
      descend(rows, lesson_.steps[batch]);
    }
    return {(n + size - 1) / size, -1};
  }

 private:
  using Buffers = std::vector<std::vector<char>>;

  bool is_from_input(size_t e) const { return net_.wires[e].source == kInput; }
  char* at(Buffers& buffers, int32_t station, int64_t row) {
    return buffers[station].data() + row * net_.stations[station].size * bytes_;
  }

  // ------------------------------------------------------------------------------------ forward and backward

  int64_t pass(const Rows& rows, int64_t first) {
    prepare(rows, first);
    for (size_t e = 0; e < net_.wires.size(); ++e) {
      if (!net_.stamps[e]) continue;
      const Shrinkage s = {net_.stamps[e], net_.clock[kPath], net_.l1, net_.l2};
      const int64_t done = settle_shared(rows, net_.weights[e].shape, s, net_.weights[e].table, n_threads_);
      if (done < rows.n) return done;
    }
    return over_rows(rows, n_threads_, [&](const Rows& part, int64_t from) {
      const int64_t done = forward(part, from);
      if (done < part.n) return done;
      judge(first + from, from, part.n);
      backward(from, part.n);
      return part.n;
    });
  }

  void prepare(const Rows& rows, int64_t first) {
    for (int64_t q = 0; q < rows.n; ++q)
      factor_[q] = (lesson_.weight ? lesson_.weight[first + q] : 1.0) / static_cast<double>(rows.n);
    for (size_t e = 0; e < net_.wires.size(); ++e) {
      const Shape& shape = net_.weights[e].shape;
      if (!is_from_input(e))
        kernels_.transpose[net_.type](net_.weights[e].table, shape.n_features, shape.n_units,
                                      transposed_[e].data());
    }
  }

  int64_t forward(const Rows& part, int64_t from) {
    for (int32_t node = 0; node < static_cast<int32_t>(net_.stations.size()); ++node) {
      bool is_first = true;
      for (size_t e = 0; e < net_.wires.size(); ++e) {
        if (net_.wires[e].target != node) continue;
        char* const out = at(is_first ? z_ : extra_, node, from);
        const int64_t done = send(part, from, e, out);
        if (done < part.n) return done;
        if (!is_first) add_to(node, from, part.n, z_);
        is_first = false;
      }
      const Station& station = net_.stations[node];
      kernels_.activate[net_.type](station.link, net_.biases.empty() ? nullptr : net_.biases[node].table,
                                   part.n, station.size, at(z_, node, from), at(h_, node, from));
    }
    return part.n;
  }

  int64_t send(const Rows& part, int64_t from, size_t e, char* out) {
    const Moved& w = net_.weights[e];
    if (is_from_input(e)) return kernels_.forward[net_.type](part, w.table, w.shape.n_units, out);
    kernels_.multiply[net_.type]({at(h_, net_.wires[e].source, from), w.table, out, part.n,
                                  w.shape.n_features, w.shape.n_units, false, 0, part.n});
    return part.n;
  }

  void add_to(int32_t node, int64_t from, int64_t n, Buffers& sums) {
    kernels_.add[net_.type](at(extra_, node, from), n * net_.stations[node].size, at(sums, node, from));
  }

  void judge(int64_t row, int64_t from, int64_t n) {
    const Answers& answers = lesson_.answers;
    const int32_t last = static_cast<int32_t>(net_.stations.size()) - 1;
    const void* const outputs = at(h_, last, from);
    char* const slopes = at(slope_, last, from);
    if (answers.loss < 0)
      kernels_.softmax[net_.type](outputs, n, answers.n_outputs, answers.classes + row, &factor_[from],
                                  &losses_[from], slopes);
    else
      kernels_.losses[net_.type](answers, row, n, outputs, &factor_[from], &losses_[from], slopes);
  }

  void backward(int64_t from, int64_t n) {
    for (int32_t node = static_cast<int32_t>(net_.stations.size()) - 2; node >= 0; --node) {
      bool is_first = true;
      for (size_t e = 0; e < net_.wires.size(); ++e) {
        if (net_.wires[e].source != node) continue;
        const Shape& shape = net_.weights[e].shape;
        kernels_.multiply[net_.type]({at(slope_, net_.wires[e].target, from), transposed_[e].data(),
                                      at(is_first ? slope_ : extra_, node, from), n, shape.n_units,
                                      shape.n_features, false, 0, n});
        if (!is_first) add_to(node, from, n, slope_);
        is_first = false;
      }
      const Station& station = net_.stations[node];
      kernels_.pass_back[net_.type](station.link, at(z_, node, from), at(h_, node, from), n * station.size,
                                    at(slope_, node, from));
    }
  }

  double add_up(int64_t first, int64_t n) const {
    double total = 0;
    for (int64_t q = 0; q < n; ++q)
      total += lesson_.weight ? losses_[q] * lesson_.weight[first + q] : losses_[q];
    return total;
  }

  // --------------------------------------------------------------------------------------------- the step
  // down

  void descend(const Rows& rows, double eta) {
    const double steps = net_.clock[kSteps] += 1;
    Update rule = net_.rule;
    rule.eta = eta;
    rule.first_seen = 1.0 - std::pow(rule.keep_first, steps);
    rule.second_seen = 1.0 - std::pow(rule.keep_second, steps);
    move_biases(rule, rows.n);
    for (size_t e = 0; e < net_.wires.size(); ++e) {
      if (is_from_input(e))
        move_table(rule, rows, e);
      else
        move_inside(rule, rows.n, e);
    }
    shrink(eta);
  }

  void move_biases(const Update& rule, int64_t n) {
    for (size_t node = 0; node < net_.biases.size(); ++node) {
      const int64_t size = net_.stations[node].size;
      kernels_.sum_rows[net_.type](slope_[node].data(), n, size, extra_[node].data());
      update_shared(rule, nullptr, 1, extra_[node].data(), net_.biases[node], n_threads_);
    }
  }

  void move_inside(const Update& rule, int64_t n, size_t e) {
    const Shape& shape = net_.weights[e].shape;
    const Wire& wire = net_.wires[e];
    multiply_shared(net_.type,
                    {h_[wire.source].data(), slope_[wire.target].data(), gradient_[e].data(),
                     shape.n_features, n, shape.n_units, true, 0, shape.n_features},
                    n_threads_);
    update_shared(rule, nullptr, shape.n_features, gradient_[e].data(), net_.weights[e], n_threads_);
  }

  void move_table(const Update& rule, const Rows& rows, size_t e) {
    const Moved& w = net_.weights[e];
    const void* const slopes = slope_[net_.wires[e].target].data();
    if (rule.kind == kPlain) {
      descend_shared(rows, slopes, w.shape, rule.eta, w.table, n_threads_);
      return;
    }
    const int64_t most = std::min(count_entries(rows), w.shape.n_features);
    features_.resize(std::max<size_t>(features_.size(), most));
    gathered_.resize(std::max<size_t>(gathered_.size(), most * w.shape.row_bytes()));
    const int64_t n =
        gather_shared(rows, slopes, w.shape, net_.slot, features_.data(), gathered_.data(), n_threads_);
    update_shared(rule, features_.data(), n, gathered_.data(), w, n_threads_);
  }

  // Weights inside the network pay at once, those of the input when they are next seen.
  void shrink(double eta) {
    if (net_.l1 == 0 && net_.l2 == 0) return;
    const double length = net_.rule.kind == kMomentum ? eta / (1.0 - net_.rule.keep_first) : eta;
    net_.clock[kPath] += length;
    for (size_t e = 0; e < net_.wires.size(); ++e) {
      const Moved& w = net_.weights[e];
      if (!is_from_input(e))
        kernels_.shrink[net_.type](net_.l1, net_.l2, length, w.shape.n_features * w.shape.n_units, w.table);
    }
  }

  const Network& net_;
  const Lesson& lesson_;
  const NetworkTable& kernels_;
  const int64_t n_threads_, bytes_;
  std::vector<double> factor_, losses_;  // of the rows of the batch
  Buffers z_, h_, slope_, extra_;        // of each station
  Buffers transposed_, gradient_;        // of each wire inside
  std::vector<int32_t> features_;        // that occur, for rules that need sums
  std::vector<char> gathered_;           // their rows of the gradient
};

}  // namespace

Stop learn_batches(const Network& network, const Lesson& lesson, int64_t n_threads) {
  return Step(network, lesson, n_threads).learn();
}

}  // namespace steepest
