// SPDX-License-Identifier: Apache-2.0
// The rounds of replicas that learn embeddings; see embedding_table.h. Rows of the table are far too many to
// copy: replicas read them as they were at the start of the round, and keep the slope of each text's h.
#include <algorithm>
#include <atomic>
#include <vector>

#include "crew.h"
#include "embedding_table.h"

namespace steepest {
namespace {

class Rounds {
 public:
  Rounds(const Embedding& model, int64_t n, int64_t rows_each, bool lists, int64_t n_parts)
      : n_head_(model.n_outputs * model.stride),
        n_scratch_(embedding_scratch(model.n_outputs, model.stride)),
        heads_(n * n_head_),
        slopes_(n * rows_each * model.stride),
        moves_(n * rows_each),
        scratch_(n * n_scratch_),
        answered_(lists ? n * model.n_outputs : 0),
        listed_(answered_.size()),
        own_(n_parts),
        fresh_(n_parts),
        n_fresh_(n_parts),
        replicas_(n),
        outcomes_(n) {
    for (int64_t r = 0; r < n; ++r) {
      replicas_[r] = {heads_.data() + r * n_head_,
                      slopes_.data() + r * rows_each * model.stride,
                      moves_.data() + r * rows_each,
                      lists ? answered_.data() + r * model.n_outputs : nullptr,
                      lists ? listed_.data() + r * model.n_outputs : nullptr,
                      0};
      std::copy_n(model.head, n_head_, replicas_[r].head);
    }
  }

  int64_t n_head_, n_scratch_;
  std::vector<float> heads_, slopes_, moves_, scratch_;
  std::vector<uint8_t> answered_;
  std::vector<int32_t> listed_;
  std::vector<std::vector<EmbeddingMove>> own_;  // of each part, as are the next two
  std::vector<std::vector<int32_t>> fresh_;
  std::vector<int64_t> n_fresh_;
  std::vector<EmbeddingReplica> replicas_;
  std::vector<EmbeddingOutcome> outcomes_;
};

}  // namespace

EmbeddingOutcome learn_embedding_replicas(const Rows& rows, const Targets& targets, const Embedding& model,
                                          const Tree& tree, const EmbeddingRule& rule, double t, int64_t n,
                                          int64_t rows_each, int64_t n_threads, int32_t* fresh) {
  const EmbeddingTable& kernels = embedding_kernels();
  const int64_t n_parts = std::max<int64_t>(1, std::min(n_threads, n)), round = n * rows_each;
  const bool lists = rule.loss == kNegatives || rule.loss == kHierarchical;
  Rounds at(model, n, rows_each, lists, n_parts);
  EmbeddingOutcome all = {0, kFine, 0, 0, 0};
  for (; all.rows_done < rows.n; all.rows_done += round) {
    const int64_t start = all.rows_done, n_entries = entries_of(rows, start, start + round);
    std::atomic<int64_t> next{0};  // texts differ in length: whoever is free takes the next replica
    in_parts(n_parts, [&](int64_t) {
      for (int64_t r = next++; r < n; r = next++) {
        const int64_t first = start + r * rows_each;
        const EmbeddingPart own = part_of(rows, targets, first, first + rows_each);
        at.replicas_[r].n_listed = 0;
        at.outcomes_[r] =
            kernels.learn_apart(own.rows, own.targets, model, tree, rule, t + static_cast<double>(first),
                                at.scratch_.data() + r * at.n_scratch_, at.replicas_[r]);
      }
    });
    for (const EmbeddingOutcome& one : at.outcomes_) all.status = std::max(all.status, one.status);
    if (all.status != kFine) return all;
    const Rows here = part_of(rows, {}, start, start + round).rows;
    in_parts(n_parts, [&](int64_t part) {
      if (static_cast<int64_t>(at.own_[part].size()) <= n_entries) {
        at.own_[part].resize(n_entries + 1);
        at.fresh_[part].resize(n_entries + 1);
      }
      at.n_fresh_[part] = kernels.add_up(here, model, at.slopes_.data(), at.moves_.data(), part, n_parts,
                                         at.own_[part].data(), at.fresh_[part].data());
      kernels.meet(model, at.replicas_.data(), n, part, n_parts);
    });
    for (int64_t part = 0; part < n_parts; ++part) {
      std::copy_n(at.fresh_[part].data(), at.n_fresh_[part], fresh + all.n_fresh);
      all.n_fresh += at.n_fresh_[part];
    }
    for (const EmbeddingOutcome& one : at.outcomes_) {
      all.loss_sum += one.loss_sum;
      all.weight_sum += one.weight_sum;
    }
  }
  return all;
}

}  // namespace steepest
