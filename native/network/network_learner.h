// SPDX-License-Identifier: Apache-2.0
// Mini-batches of sparse rows through any graph of dot products: forward, loss, back-propagation and one step
// each, without a return to Python in between. steepest.learners.network.graph says what is computed. Rows
// are independent until their gradients are added up: threads take rows through the whole graph and back,
// wait for each other once, and share the features to move.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "network/network_work.h"

namespace steepest {

// A node of the graph; nodes are in the order of computing, and the last one is the output.
struct Station {
  int64_t size;
  int32_t link;
};

constexpr int32_t kInput = -1;

// An edge, from a station or the input to a station.
struct Wire {
  int32_t source, target;
};

template <typename T>
struct Network {
  std::vector<Station> stations;
  std::vector<Wire> wires;
  std::vector<Weights<T>> weights;  // of each wire
  std::vector<Weights<T>> biases;   // of each station, or none at all
  std::vector<double*> stamps;      // of each wire, null where nothing is owed
  NetworkChoices choices;
  int32_t* slot;  // -1 for each feature; solvers that need sums write there, and clean up
  double* clock;  // steps so far, and the path length of penalties
};

struct Batches {
  Rows rows;
  NetworkTargets targets;
  const double* steps;  // eta of each batch
  double* totals;       // out: the weighted loss of each batch, before it was learned
};

// Where learning stopped: all batches were learned, or a loss was not a number, or a row names a feature that
// does not exist (`bad_row` counts from the first row of the batches).
struct Stop {
  int64_t batches;
  int64_t bad_row;  // -1: none
};

inline Step step_of(const NetworkChoices& choices, double eta, double n_steps) {
  return {choices, eta, 1.0 - std::pow(choices.keep_first, n_steps),
          1.0 - std::pow(choices.keep_second, n_steps)};
}

enum Clock { kSteps, kPath };

template <typename T>
class NetworkLearner {
 public:
  NetworkLearner(const Network<T>& network, const Batches& batches, int64_t n_threads)
      : net_(network),
        batches_(batches),
        kernels_(network_kernels_of<T>()),
        n_threads_(n_threads),
        size_(std::min(network.choices.batch_size, std::max<int64_t>(batches.rows.n, 1))),
        factor_(size_),
        losses_(size_) {
    for (const Station& station : net_.stations)
      for (auto* buffers : {&z_, &h_, &gradient_, &extra_}) buffers->emplace_back(size_ * station.size);
    for (size_t e = 0; e < net_.wires.size(); ++e)
      for (auto* buffers : {&transposed_, &moves_})
        buffers->emplace_back(is_from_input(e) ? 0 : net_.weights[e].table.size());
  }

  Stop learn() {
    const int64_t n = batches_.rows.n;
    for (int64_t batch = 0, first = 0; first < n; ++batch, first += size_) {
      const Rows rows = slice(batches_.rows, first, std::min(first + size_, n));
      const int64_t done = pass(rows, first);
      if (done < rows.n) return {batch, first + done};
      double total = 0;
      for (int64_t q = 0; q < rows.n; ++q)
        total += batches_.targets.weight ? losses_[q] * batches_.targets.weight[first + q] : losses_[q];
      batches_.totals[batch] = total;
      if (!std::isfinite(total)) return {batch, -1};
      descend(rows, batches_.steps[batch]);
    }
    return {(n + size_ - 1) / size_, -1};
  }

 private:
  using Buffers = std::vector<std::vector<T>>;

  bool is_from_input(size_t e) const { return net_.wires[e].source == kInput; }
  T* at(Buffers& buffers, int32_t station, int64_t row) {
    return buffers[station].data() + row * net_.stations[station].size;
  }

  // ------------------------------------------------------------------------------------ forward and backward

  int64_t pass(const Rows& rows, int64_t first) {
    for (int64_t q = 0; q < rows.n; ++q)
      factor_[q] =
          (batches_.targets.weight ? batches_.targets.weight[first + q] : 1.0) / static_cast<double>(rows.n);
    for (size_t e = 0; e < net_.wires.size(); ++e) {
      const Matrix<T>& table = net_.weights[e].table;
      if (!is_from_input(e)) kernels_.transpose(table, transposed_[e].data());
      if (!net_.stamps[e]) continue;
      const Shrinkage s = {net_.stamps[e], net_.clock[kPath], net_.choices.l1, net_.choices.l2};
      const int64_t done = pay_rows(rows, s, table, n_threads_);
      if (done < rows.n) return done;
    }
    return over_rows(rows, n_threads_, kLeastRows, [&](const Rows& part, int64_t from) {
      const int64_t done = forward(part, from);
      if (done < part.n) return done;
      const int32_t last = static_cast<int32_t>(net_.stations.size()) - 1;
      kernels_.judge(batches_.targets, {first + from, part.n, at(h_, last, from), &factor_[from],
                                        &losses_[from], at(gradient_, last, from)});
      backward(from, part.n);
      return part.n;
    });
  }

  int64_t forward(const Rows& part, int64_t from) {
    for (int32_t node = 0; node < static_cast<int32_t>(net_.stations.size()); ++node) {
      bool is_first = true;
      for (size_t e = 0; e < net_.wires.size(); ++e) {
        if (net_.wires[e].target != node) continue;
        const int64_t done = send(part, from, e, at(is_first ? z_ : extra_, node, from));
        if (done < part.n) return done;
        if (!is_first) add_extra(node, from, part.n, z_);
        is_first = false;
      }
      const Station& station = net_.stations[node];
      kernels_.activate(station.link, net_.biases.empty() ? nullptr : net_.biases[node].table.data, part.n,
                        station.size, at(z_, node, from), at(h_, node, from));
    }
    return part.n;
  }

  int64_t send(const Rows& part, int64_t from, size_t e, T* out) {
    const Matrix<T>& w = net_.weights[e].table;
    if (is_from_input(e)) return kernels_.forward(part, w, out);
    kernels_.multiply(
        {at(h_, net_.wires[e].source, from), w.data, out, part.n, w.n_rows, w.n_columns, false, 0, part.n});
    return part.n;
  }

  void add_extra(int32_t node, int64_t from, int64_t n, Buffers& sums) {
    kernels_.add(at(extra_, node, from), n * net_.stations[node].size, at(sums, node, from));
  }

  void backward(int64_t from, int64_t n) {
    for (int32_t node = static_cast<int32_t>(net_.stations.size()) - 2; node >= 0; --node) {
      bool is_first = true;
      for (size_t e = 0; e < net_.wires.size(); ++e) {
        if (net_.wires[e].source != node) continue;
        const Matrix<T>& w = net_.weights[e].table;
        kernels_.multiply({at(gradient_, net_.wires[e].target, from), transposed_[e].data(),
                           at(is_first ? gradient_ : extra_, node, from), n, w.n_columns, w.n_rows, false, 0,
                           n});
        if (!is_first) add_extra(node, from, n, gradient_);
        is_first = false;
      }
      const Station& station = net_.stations[node];
      kernels_.pass_back(station.link, at(z_, node, from), at(h_, node, from), n * station.size,
                         at(gradient_, node, from));
    }
  }

  // ----------------------------------------------------------------------------------------- the step down

  void descend(const Rows& rows, double eta) {
    const Step step = step_of(net_.choices, eta, net_.clock[kSteps] += 1);
    for (size_t node = 0; node < net_.biases.size(); ++node) {
      T* const sums = extra_[node].data();
      kernels_.sum_rows(gradient_[node].data(), rows.n, net_.stations[node].size, sums);
      update<T>(step, nullptr, 1, sums, net_.biases[node], n_threads_);
    }
    for (size_t e = 0; e < net_.wires.size(); ++e) {
      if (is_from_input(e))
        move_input(step, rows, e);
      else
        move_inner(step, rows.n, e);
    }
    shrink(eta);
  }

  void move_inner(const Step& step, int64_t n, size_t e) {
    const Matrix<T>& w = net_.weights[e].table;
    T* const sums = moves_[e].data();
    multiply<T>({h_[net_.wires[e].source].data(), gradient_[net_.wires[e].target].data(), sums, w.n_rows, n,
                 w.n_columns, true, 0, w.n_rows},
                n_threads_);
    update<T>(step, nullptr, w.n_rows, sums, net_.weights[e], n_threads_);
  }

  void move_input(const Step& step, const Rows& rows, size_t e) {
    const Weights<T>& w = net_.weights[e];
    const T* const gradients = gradient_[net_.wires[e].target].data();
    if (step.choices.kind == kPlain) {
      steepest::descend<T>(rows, gradients, step.eta, w.table, n_threads_);
      return;
    }
    const size_t most = std::min(entries_in(rows), w.table.n_rows);
    features_.resize(std::max(features_.size(), most));
    gathered_.resize(std::max<size_t>(gathered_.size(), most * w.table.n_columns));
    const int64_t n = gather<T>(rows, {gradients, rows.n, w.table.n_columns}, net_.slot, features_.data(),
                                gathered_.data(), n_threads_);
    update<T>(step, features_.data(), n, gathered_.data(), w, n_threads_);
  }

  // Weights inside the network pay at once, those of the input when they are next seen.
  void shrink(double eta) {
    const NetworkChoices& c = net_.choices;
    if (c.l1 == 0 && c.l2 == 0) return;
    const double length = c.kind == kMomentum ? eta / (1.0 - c.keep_first) : eta;
    net_.clock[kPath] += length;
    for (size_t e = 0; e < net_.wires.size(); ++e)
      if (!is_from_input(e))
        kernels_.pay_all({nullptr, 0, c.l1, c.l2}, length, net_.weights[e].table.size(),
                         net_.weights[e].table.data);
  }

  const Network<T>& net_;
  const Batches& batches_;
  const NetworkKernels<T>& kernels_;
  const int64_t n_threads_, size_;       // size: rows of a batch
  std::vector<double> factor_, losses_;  // of the rows of the batch
  Buffers z_, h_, gradient_, extra_;     // of each station
  Buffers transposed_, moves_;           // of each wire inside
  std::vector<int32_t> features_;        // that occur, for solvers that need sums
  std::vector<T> gathered_;              // their rows of the gradient
};

}  // namespace steepest
