// fwd_arguments from the command line: reads one call from standard input. Prints the kernel's arguments as
// JSON, or "error <status>" and the words.  Lines:
//
//   tensor NAME DTYPE DEVICE ADDRESS DIMS SIZE... STRIDE...      number NAME VALUE
#include "host/arguments/fwd_arguments.hpp"

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include "host/arguments/call_tensors.hpp"
#include "host/types/error.hpp"

namespace {

std::map<std::string, fa_tensor*> tensors(fa_fwd_call& call) {
  std::map<std::string, fa_tensor*> found;
  for (const fa::Described& each : fa::tensors_of(call)) {
    found[each.named.name] = const_cast<fa_tensor*>(&each.named.tensor);
  }
  return found;
}

fa_tensor read_tensor() {
  fa_tensor tensor{};
  std::uintptr_t address = 0;
  std::cin >> tensor.dtype >> tensor.device >> address >> tensor.dims;
  tensor.data = reinterpret_cast<void*>(address);
  for (int i = 0; i < tensor.dims; ++i) std::cin >> tensor.size[i];
  for (int i = 0; i < tensor.dims; ++i) std::cin >> tensor.stride[i];
  return tensor;
}

void set_number(fa_fwd_call& call, const std::string& name, double value) {
  const std::map<std::string, std::int64_t*> whole = {{"max_seqlen_q", &call.max_seqlen_q},
                                                      {"max_seqlen_k", &call.max_seqlen_k},
                                                      {"window_left", &call.window_left},
                                                      {"window_right", &call.window_right}};
  if (whole.count(name) != 0) *whole.at(name) = static_cast<std::int64_t>(value);
  if (name == "softmax_scale") call.softmax_scale = static_cast<float>(value);
  if (name == "softcap") call.softcap = static_cast<float>(value);
  if (name == "dropout_p") call.dropout_p = value;
}

fa_fwd_call read_call() {
  fa_fwd_call call{};
  const auto places = tensors(call);
  std::string kind, name;
  while (std::cin >> kind >> name) {
    if (kind == "tensor") {
      *places.at(name) = read_tensor();
    } else {
      // std::stod instead of >>: it reads nan and inf.
      std::string value;
      std::cin >> value;
      set_number(call, name, std::stod(value));
    }
  }
  return call;
}

void print(const fa::FwdArguments& arguments) {
  const fa::FwdParams& p = arguments.params;
  const std::map<std::string, double> numbers = {
      {"batch", static_cast<double>(arguments.batch)},
      {"head_dim", static_cast<double>(arguments.head_dim)},
      {"max_seqlen_q", static_cast<double>(arguments.max_seqlen_q)},
      {"max_seqlen_k", static_cast<double>(arguments.max_seqlen_k)},
      {"aligned", arguments.aligned},
      {"q_batch", static_cast<double>(p.q_batch)},
      {"k_batch", static_cast<double>(p.k_batch)},
      {"lse_batch", static_cast<double>(p.lse_batch)},
      {"lse_head", static_cast<double>(p.lse_head)},
      {"table_batch", static_cast<double>(p.table_batch)},
      {"alibi_batch", static_cast<double>(p.alibi_batch)},
      {"partial_split", static_cast<double>(p.partial_split)},
      {"seqlen_q", p.seqlen_q},
      {"seqlen_k", p.seqlen_k},
      {"rows_q", p.rows_q},
      {"rows_k", p.rows_k},
      {"page", p.page},
      {"num_pages", p.num_pages},
      {"batch_k", p.batch_k},
      {"splits", p.splits},
      {"window_left", p.window_left},
      {"window_right", p.window_right},
      {"dropout_below", p.dropout_below},
      {"rare", p.rare},
      {"sink", static_cast<double>(reinterpret_cast<std::uintptr_t>(p.sink))},
      {"dropout_scale", p.dropout_scale},
      {"masked", arguments.masked},
      {"mask_batch", static_cast<double>(arguments.mask.mask_batch)},
      {"mask_head", static_cast<double>(arguments.mask.mask_head)},
      {"mask_row", static_cast<double>(arguments.mask.mask_row)},
      {"mask_kind", arguments.mask.mask_kind},
  };
  const char* separator = "{";
  for (const auto& [name, value] : numbers) {
    std::printf("%s\"%s\": %.17g", separator, name.c_str(), value);
    separator = ", ";
  }
  std::printf("}\n");
}

}  // namespace

int main() {
  try {
    print(fa::fwd_arguments(read_call()));
  } catch (const fa::Error& error) {
    std::printf("error %d\n%s\n", error.status, error.what());
  }
}
