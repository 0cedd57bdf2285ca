// SPDX-License-Identifier: Apache-2.0
// The Python module: each bind_* file exposes one room of kernels.
#include <nanobind/nanobind.h>

#include "kernel_table.h"

namespace nb = nanobind;

void bind_batch(nb::module_& module);
void bind_dual(nb::module_& module);
void bind_dense(nb::module_& module);
void bind_embedding(nb::module_& module);
void bind_kmeans(nb::module_& module);
void bind_factors(nb::module_& module);
void bind_libsvm(nb::module_& module);
void bind_linear(nb::module_& module);
void bind_names(nb::module_& module);
void bind_network(nb::module_& module);
void bind_nonzeros(nb::module_& module);
void bind_slots(nb::module_& module);
void bind_text(nb::module_& module);
void bind_vw(nb::module_& module);

NB_MODULE(_native, module) {
  module.doc() = "The inner loops of steepest.";
  module.attr("isa") = steepest::kernels().name;
  bind_batch(module);
  bind_dual(module);
  bind_dense(module);
  bind_embedding(module);
  bind_kmeans(module);
  bind_factors(module);
  bind_libsvm(module);
  bind_linear(module);
  bind_names(module);
  bind_network(module);
  bind_nonzeros(module);
  bind_slots(module);
  bind_text(module);
  bind_vw(module);
}
