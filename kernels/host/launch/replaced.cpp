#include "host/launch/replaced.hpp"

#include <atomic>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "host/launch/device.hpp"
#include "host/launch/module.hpp"
#include "host/plan/paths.hpp"
#include "host/registry/select.hpp"
#include "host/registry/unpack.hpp"
#include "host/types/error.hpp"

namespace fa {

namespace {

constexpr std::int64_t kMostOfWorkgroup = 1024;  // rows, and threads

struct Replaced {
  std::mutex mutex;
  std::map<std::tuple<int, const Instance*, int>, Workgroups> used;  // by regime
  std::map<std::tuple<int, const Instance*, std::string>, Workgroups> loaded;
  std::deque<Unpacked> code;
  std::atomic<bool> any{false};  // read without the lock by every launch
};

// Never destroyed: at exit the HIP runtime may end before this library.
Replaced& replaced() {
  static auto& all = *new Replaced;
  return all;
}

[[noreturn]] void refuse_candidate(const std::string& words) {
  throw Error(FA_INVALID, "flash_attn_rocm::replace cannot use its arguments:\n  - " + words);
}

// Only kernels with rows are looked up in `in_use`.
const Instance& replaceable(const std::string& kernel, const std::string& gfx) {
  for (const Instance& each : registry()) {
    const bool latent =
        each.op == name(Op::mla) || each.op == name(Op::mla_8bit) || each.op == name(Op::mla_rows);
    const bool has_rows = each.head_dim != kAnyHeadDim && !latent;
    if (each.name == kernel && each.has(gfx) && has_rows) return each;
  }
  refuse_candidate("kernel: expected one with rows of its own on " + gfx + ", got " + kernel);
}

// The numbers of the regime of this name, or of all.
std::vector<int> regimes_named(const std::string& wanted) {
  std::vector<int> found;
  std::string names;
  for (int n = 0; n < static_cast<int>(std::size(kRegimes)); ++n) {
    if (wanted.empty() || wanted == kRegimes[n].name) found.push_back(n);
    names += (names.empty() ? "" : ", ") + std::string(kRegimes[n].name);
  }
  if (found.empty()) refuse_candidate("regime: expected one of " + names + ", got " + wanted);
  return found;
}

int within(const char* what, std::int64_t value, std::int64_t most) {
  if (value >= 1 && value <= most) return static_cast<int>(value);
  refuse_candidate(std::string(what) + ": expected 1 to " + std::to_string(most) + ", got " +
                   std::to_string(value));
}

// The words of a damaged library would lead to a new installation of the wrong package.
Unpacked unpacked_code(const Candidate& candidate) {
  try {
    return unpack(candidate.packed, {});
  } catch (const Error&) {
    refuse_candidate("code: it is no compressed bundle of code objects");
  }
}

Bytes code_object(const Unpacked& unpacked, const Candidate& candidate, const std::string& gfx) {
  std::vector<Bytes> codes;
  try {
    codes = find_code_objects(unpacked.bytes(), gfx);
  } catch (const Error&) {
    refuse_candidate("code: it has no code objects for " + gfx);
  }
  if (candidate.place >= 0 && candidate.place < static_cast<std::int64_t>(codes.size())) {
    return codes[static_cast<std::size_t>(candidate.place)];
  }
  refuse_candidate("place: expected 0 to " + std::to_string(codes.size() - 1) + ", got " +
                   std::to_string(candidate.place));
}

Workgroups load_row(int device, const std::string& arch, const Instance& instance,
                    const Candidate& candidate) {
  const int rows = within("rows", candidate.rows, kMostOfWorkgroup);
  const int threads = within("threads", candidate.threads, kMostOfWorkgroup);
  // Kept also after an error: the module may be loaded by then.
  const Unpacked& unpacked = replaced().code.emplace_back(unpacked_code(candidate));
  const Bytes code = code_object(unpacked, candidate, code_object_of(arch));
  const DeviceGuard guard(device);
  return {rows, threads, load_candidate(device, arch, instance, candidate.row, code)};
}

}  // namespace

void replace(int device, const std::string& arch, const Candidate& candidate) {
  const Instance& instance = replaceable(candidate.kernel, code_object_of(arch));
  const std::vector<int> regimes = regimes_named(candidate.regime);
  Replaced& all = replaced();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (candidate.row.empty()) {
    for (const int each : regimes) all.used.erase({device, &instance, each});
    return;
  }
  const std::tuple<int, const Instance*, std::string> key{device, &instance, candidate.row};
  auto found = all.loaded.find(key);
  if (found == all.loaded.end()) {
    found = all.loaded.emplace(key, load_row(device, arch, instance, candidate)).first;
  }
  for (const int each : regimes) all.used.insert_or_assign({device, &instance, each}, found->second);
  all.any = true;
}

Workgroups in_use(int device, const Instance& instance, const CallSizes& call, const Workgroups& shipped) {
  Replaced& all = replaced();
  if (!all.any) return shipped;
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.used.find({device, &instance, regime_of(call)});
  return found != all.used.end() ? found->second : shipped;
}

}  // namespace fa
