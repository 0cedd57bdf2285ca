// SPDX-License-Identifier: Apache-2.0
// The Python module: each bind_* file exposes one room of kernels.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_core(nb::module_& module);
void bind_batch(nb::module_& module);
void bind_embedding(nb::module_& module);
void bind_kmeans(nb::module_& module);
void bind_factors(nb::module_& module);
void bind_fm(nb::module_& module);
void bind_linear(nb::module_& module);
void bind_network(nb::module_& module);
void bind_text(nb::module_& module);
void bind_parse(nb::module_& module);

NB_MODULE(_native, module) {
  module.doc() = "The inner loops of steepest.";
  bind_core(module);
  bind_batch(module);
  bind_embedding(module);
  bind_kmeans(module);
  bind_factors(module);
  bind_fm(module);
  bind_linear(module);
  bind_network(module);
  bind_text(module);
  bind_parse(module);
}
