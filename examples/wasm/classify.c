/* SPDX-License-Identifier: Apache-2.0
 * An exported model of one text column as a WebAssembly module: the page writes UTF-8 to text(), calls classify(bytes),
 * and reads the names and probabilities of the classes. MODEL is the file that `steepest export --to c` wrote. */
#include MODEL

#define MOST_BYTES (1 << 20)
#define EXPORT(name) __attribute__((export_name(name)))

static char text[MOST_BYTES];
static steepest_row room;
static double p[STEEPEST_N_CLASSES];

EXPORT("text") char *text_room(void) { return text; }
EXPORT("most_bytes") int most_bytes(void) { return MOST_BYTES; }
EXPORT("n_classes") int n_classes(void) { return STEEPEST_N_CLASSES; }
EXPORT("class_name") const char *class_name(int k) { return steepest_classes[k]; }
EXPORT("probability") double class_probability(int k) { return p[k]; }

/* The number of the class; its probability and those of the others can then be read. */
EXPORT("classify") int classify(int n_bytes) {
  const steepest_input in = {{text, (size_t)n_bytes}};
  double scores[STEEPEST_N_SCORES];
  steepest_scores(&in, &room, scores);
  steepest_probabilities(scores, p);
  return steepest_class(scores);
}
