// SPDX-License-Identifier: Apache-2.0
// Threads and replicas that learn embeddings; see embedding_table.h. Rows of the table are far too many to
// copy: replicas read them as they were at the start of the round, and keep the gradient of each text's h.
#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "embedding/embedding_table.h"

namespace steepest {
namespace {

constexpr int64_t kLeastRows = 64;  // fewer are not worth a thread

// Parts run side by side, so their steps fall as if rows were shared out in turn.
EmbeddingOutcome learn_in_turn(const EmbeddingTask& task, int64_t n_threads, int32_t* fresh) {
  const int64_t parts = parts_for(task.rows.n, n_threads, kLeastRows), n_scratch = task.model.n_scratch();
  const auto start = [&](int64_t part) { return task.rows.n * part / parts; };
  std::vector<EmbeddingOutcome> done(parts);
  std::vector<int64_t> room(parts);
  std::vector<float> scratch(parts * n_scratch);
  for (int64_t p = 1; p < parts; ++p)
    room[p] = room[p - 1] + 1 + entries_in(slice(task.rows, start(p - 1), start(p)));
  parallel_for(parts, parts, [&](int64_t p) {
    EmbeddingTask own = task.part(start(p), start(p + 1));
    own.t += static_cast<double>(p);
    own.every = static_cast<double>(parts);
    done[p] = embedding_kernels().learn(own, scratch.data() + p * n_scratch, fresh + room[p], nullptr);
  });
  EmbeddingOutcome all = {{task.rows.n, kFine, 0, 0}, 0};
  for (int64_t p = 0; p < parts; ++p) {
    if (done[p].status != kFine && all.status == kFine) {
      all.status = done[p].status;
      all.rows_done = start(p) + done[p].rows_done;
    }
    add_sums(done[p], all);
    std::copy_n(fresh + room[p], done[p].n_fresh, fresh + all.n_fresh);
    all.n_fresh += done[p].n_fresh;
  }
  return all;
}

class Replicas {
 public:
  Replicas(const Embedding& model, const EmbeddingChoices& c, int64_t n_threads)
      : n_(c.n_replicas),
        rows_each_(c.rows_each),
        n_parts_(std::max<int64_t>(1, std::min(n_threads, n_))),
        n_scratch_(model.n_scratch()),
        heads_(n_ * model.n_outputs * model.stride),
        gradients_(n_ * rows_each_ * model.stride),
        moves_(n_ * rows_each_),
        scratch_(n_ * n_scratch_),
        moved_(c.loss == kNegatives || c.loss == kHierarchical ? n_ * model.n_outputs : 0),
        listed_(moved_.size()),
        own_(n_parts_),
        fresh_(n_parts_),
        n_fresh_(n_parts_) {
    for (int64_t r = 0; r < n_; ++r) {
      const int64_t row = r * model.n_outputs;
      replicas_.push_back({heads_.data() + row * model.stride, &gradients_[r * rows_each_ * model.stride],
                           &moves_[r * rows_each_], moved_.empty() ? nullptr : &moved_[row],
                           listed_.empty() ? nullptr : &listed_[row], 0});
      std::copy_n(model.head, model.n_outputs * model.stride, replicas_[r].head);
    }
  }

  // One round; `all` and `fresh` grow by what was learned. False if a row is in trouble.
  bool learn(const EmbeddingTask& round, EmbeddingOutcome& all, int32_t* fresh) {
    std::vector<EmbeddingOutcome> outcomes(n_);
    parallel_for(n_, n_parts_, [&](int64_t r) {  // texts differ in length: whoever is free takes the next
      EmbeddingTask own = round.part(r * rows_each_, (r + 1) * rows_each_);
      own.t += static_cast<double>(r * rows_each_);
      own.model.head = replicas_[r].head;
      replicas_[r].n_listed = 0;
      outcomes[r] = embedding_kernels().learn(own, scratch_.data() + r * n_scratch_, nullptr, &replicas_[r]);
    });
    for (const EmbeddingOutcome& one : outcomes) all.status = std::max(all.status, one.status);
    if (all.status != kFine) return false;
    const size_t room = entries_in(round.rows) + 1;
    parallel_for(n_parts_, n_parts_, [&](int64_t part) {
      own_[part].resize(std::max(room, own_[part].size()));
      fresh_[part].resize(own_[part].size());
      n_fresh_[part] = embedding_kernels().add_up(round.rows, round.model, gradients_.data(), moves_.data(),
                                                  {part, n_parts_}, own_[part].data(), fresh_[part].data());
      embedding_kernels().merge_heads(round.model, replicas_.data(), n_, {part, n_parts_});
    });
    for (int64_t part = 0; part < n_parts_; ++part) {
      std::copy_n(fresh_[part].data(), n_fresh_[part], fresh + all.n_fresh);
      all.n_fresh += n_fresh_[part];
    }
    for (const EmbeddingOutcome& one : outcomes) add_sums(one, all);
    return true;
  }

 private:
  int64_t n_, rows_each_, n_parts_, n_scratch_;
  std::vector<float> heads_, gradients_, moves_, scratch_;
  std::vector<uint8_t> moved_;
  std::vector<int32_t> listed_;
  std::vector<std::vector<EmbeddingMove>> own_;  // of each part, as are the next two
  std::vector<std::vector<int32_t>> fresh_;
  std::vector<int64_t> n_fresh_;
  std::vector<EmbeddingReplica> replicas_;
};

}  // namespace

EmbeddingOutcome learn_embedding(const EmbeddingTask& task, int64_t n_threads, int32_t* fresh) {
  const EmbeddingChoices& c = task.choices;
  if (c.n_replicas <= 1) return learn_in_turn(task, n_threads, fresh);
  Replicas replicas(task.model, c, n_threads);
  EmbeddingOutcome all = {{0, kFine, 0, 0}, 0};
  for (; all.rows_done < task.rows.n; all.rows_done += c.n_replicas * c.rows_each) {
    EmbeddingTask round = task.part(all.rows_done, all.rows_done + c.n_replicas * c.rows_each);
    round.t += static_cast<double>(all.rows_done);
    if (!replicas.learn(round, all, fresh)) break;
  }
  return all;
}

}  // namespace steepest
