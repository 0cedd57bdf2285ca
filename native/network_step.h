// SPDX-License-Identifier: Apache-2.0
// Mini-batches of sparse rows through any graph of dot products: forward, loss, back-propagation and one step
// of a rule each, without a return to Python in between. steepest.learners.graph says what is computed.
#pragma once
#include <cstdint>
#include <vector>

#include "network_work.h"

namespace steepest {

// A node of the graph; nodes stand in the order of computing, and the last one is the output.
struct Station {
  int64_t size;
  int32_t link;
};

constexpr int32_t kInput = -1;

// An edge, from a station or the input to a station.
struct Wire {
  int32_t source, target;
};

struct Network {
  int type;  // 0 float, 1 double
  std::vector<Station> stations;
  std::vector<Wire> wires;
  std::vector<Moved> weights;   // of each wire
  std::vector<Moved> biases;    // of each station, or none at all
  std::vector<double*> stamps;  // of each wire, null where nothing is owed
  Update rule;                  // eta and what Adam has seen are set for every batch
  double l1, l2;
  int32_t* slot;  // -1 for each feature; rules that need sums write there, and clean up
  double* clock;  // steps so far, and the path length of penalties
};

struct Lesson {
  Rows rows;
  Answers answers;
  const double* weight;  // of each row, or null
  const double* steps;   // eta of each batch
  int64_t batch_size;
  double* totals;  // out: the weighted loss of each batch, before it was learned
};

// Where learning stopped: all batches were learned, or a loss was no number, or a row names a feature that
// does not exist (`bad_row` counts from the first row of the lesson).
struct Stop {
  int64_t batches;
  int64_t bad_row;  // -1: none
};

Stop learn_batches(const Network& network, const Lesson& lesson, int64_t n_threads);

}  // namespace steepest
