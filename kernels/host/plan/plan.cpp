#include "host/plan/plan.hpp"

#include <algorithm>

#include "device/arch/traits.hpp"
#include "device/call/every_tile.hpp"
#include "device/call/params.hpp"
#include "host/plan/regimes.hpp"

namespace fa {

namespace {

constexpr const char* kUnaligned =
    "an address or a stride is not a multiple of 8 elements, or too large, for the other kernels";

constexpr const char* kUnalignedCodes =
    "an address or a stride is not a multiple of 16 bytes of codes or of 8 elements, or too large";

constexpr const char* kUnpackable = "more rows than can be packed";

// The cost of a part of a wide workgroup on an otherwise full device, in keys: its rows of out, in fp32, are
// stored and read again. The nominal bandwidth of an MI300X or a RX 7900 XTX and the modelled speed give 180.
constexpr double kKeysOfPart = 256;

// The rules for a call, by its regime.
const Choice& choice_of(const PlanRequest& r) {
  const std::int64_t width = r.nheads_k == 0 ? 0 : r.nheads / r.nheads_k;
  return choice_of(regime_of({r.max_seqlen_q, r.max_seqlen_k, width, r.causal}), r.arch, r.dtype, r.head_dim);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

std::string count(std::int64_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

// The share of busy places, over all rounds of workgroups.
double filled(std::int64_t workgroups, std::int64_t places) {
  return static_cast<double>(workgroups) / static_cast<double>(ceil_div(workgroups, places) * places);
}

// The fewest parts that fill the device, or fill it best if none does.
std::int64_t splits_to_fill(std::int64_t workgroups, std::int64_t places, std::int64_t most, double full) {
  if (static_cast<double>(workgroups) >= full * static_cast<double>(places)) return 1;
  double best = 0;
  for (std::int64_t s = 1; s <= most; ++s) best = std::max(best, filled(workgroups * s, places));
  std::int64_t splits = 1;
  while (filled(workgroups * splits, places) < std::min(best, full)) ++splits;
  return splits;
}

// The kernels of few queries.
Op split_op(const PlanRequest& r) { return op_of(Path::split, {false, r.coded}); }

// Workgroups of this kernel that a compute unit surely holds.
template <class Request>
std::int64_t held_by_unit(Op op, const Request& r) {
  const FwdConfig config = forward_config(op, r.arch, r.dtype, static_cast<int>(r.head_dim));
  return std::max(config.waves_per_simd * traits(r.arch).simds / config.waves, 1);
}

// Places of a compute unit, for workgroups of few queries.
std::int64_t places_of(const PlanRequest& r) {
  const Choice& choice = choice_of(r);
  if (!r.coded) return choice.places;
  const std::int64_t of_workgroup = r.head_dim * traits(r.arch).cus_of_workgroup;
  return std::max(choice.places, std::min(choice.in_flight / of_workgroup, held_by_unit(split_op(r), r)));
}

std::int64_t workgroups_of(const PlanRequest& r) {
  const std::int64_t rows = r.max_seqlen_q * (r.nheads / r.nheads_k);
  const int block = forward_tile(split_op(r), r.arch, r.dtype, static_cast<int>(r.head_dim)).block_m;
  return r.batch * r.nheads_k * ceil_div(rows, block);
}

// Parts of so many keys, of `least` each.
std::int64_t most_parts(std::int64_t keys, std::int64_t least) {
  return std::clamp(ceil_div(keys, least), std::int64_t{1}, kMaxSplits);
}

std::string filling_words(std::int64_t keys, std::int64_t splits, std::int64_t workgroups,
                          std::int64_t compute_units) {
  return count(keys, "key") + " in " + count(splits, "part") + " give " +
         count(workgroups * splits, "workgroup") + " for " + count(compute_units, "compute unit");
}

std::string wanted_words(std::int64_t wanted, std::int64_t used, std::int64_t keys) {
  return count(wanted, "part") + " wanted, " + std::to_string(used) + " used for " + count(keys, "key");
}

Plan whole(const PlanRequest& r, const std::string& why) {
  return {traits(r.arch).matrix_instructions() ? Path::matrix : Path::tiled, 1, why};
}

std::int64_t tall_workgroups(const PlanRequest& r) {
  const int block = forward_tile(Op::fwd_tall, r.arch, r.dtype, static_cast<int>(r.head_dim)).block_m;
  return r.batch * r.nheads * ceil_div(r.max_seqlen_q, block);
}

// Tall workgroups load half of the bytes, and there are half as many, so they must still fill the device. A
// compute unit has room for one (two units sharing workgroups: for two).
bool tall_pays(const PlanRequest& r) {
  return r.plain && r.kernels.has(Op::fwd_tall) && r.compute_units > 0 &&
         choice_of(r).kernels == Chosen::tall &&
         filled(tall_workgroups(r), r.compute_units) >= choice_of(r).filled;
}

Plan tall(const PlanRequest& r) {
  return {
      Path::tall, 1,
      count(r.max_seqlen_q, "query row") + " and " + count(r.max_seqlen_k, "key") +
          " are many: workgroups of " +
          std::to_string(forward_tile(Op::fwd_tall, r.arch, r.dtype, static_cast<int>(r.head_dim)).block_m) +
          " rows load keys half as often, and " + count(tall_workgroups(r), "workgroup") + " fill " +
          count(r.compute_units, "compute unit")};
}

std::int64_t wide_workgroups(const PlanRequest& r) {
  const int block = forward_tile(Op::fwd_wide, r.arch, r.dtype, static_cast<int>(r.head_dim)).block_m;
  return r.batch * r.nheads * ceil_div(r.max_seqlen_q, block);
}

// The fastest number of parts for such a call. Time, in the workgroup's time for a key: rounds of workgroups
// with their keys, plus the memory time of the parts' rows.
std::int64_t wide_parts(const PlanRequest& r) {
  const FwdConfig config = forward_config(Op::fwd_wide, r.arch, r.dtype, static_cast<int>(r.head_dim));
  const ArchTraits t = traits(r.arch);
  const std::int64_t workgroups = wide_workgroups(r), keys = r.max_seqlen_k;
  const std::int64_t places =
      std::max(r.compute_units * config.waves_per_simd * t.simds / config.waves, std::int64_t{1});
  const auto time = [&](std::int64_t parts) {
    const double stored = parts == 1 ? 0 : kKeysOfPart * static_cast<double>(workgroups * parts) / places;
    return static_cast<double>(ceil_div(workgroups * parts, places) * ceil_div(keys, parts)) + stored;
  };
  const Choice& choice = choice_of(r);
  std::int64_t best = 1;
  for (std::int64_t s = 2; s <= most_parts(keys, choice.keys); ++s) {
    if (time(s) < time(best)) best = s;
  }
  return time(best) < choice.filled * time(1) ? best : 1;  // the precision of the estimate
}

// If these kernels cannot serve a call, none can, including the reference kernel.
Plan wide(const PlanRequest& r) {
  if (!r.aligned) return {Path::reference, 1, kUnaligned};
  if (r.dropout || r.masked) {
    return {Path::reference, 1, "its kernels have neither dropout nor a mask"};
  }
  const std::string why = "waves divide head_dim " + std::to_string(r.head_dim) + "; ";
  const std::int64_t workgroups = wide_workgroups(r);
  const auto with = [&](std::int64_t splits, const std::string& words) {
    return Plan{Path::wide, static_cast<std::int32_t>(splits), why + words};
  };
  if (r.num_splits > 1) {
    const std::int64_t keys =
        forward_config(Op::fwd_wide, r.arch, r.dtype, static_cast<int>(r.head_dim)).keys;
    const std::int64_t splits = std::min(r.num_splits, most_parts(r.max_seqlen_k, keys));
    return with(splits, wanted_words(r.num_splits, splits, r.max_seqlen_k));
  }
  if (r.num_splits == 1 || workgroups == 0 || r.compute_units < 1) return with(1, "keys are not split");
  const std::int64_t splits = wide_parts(r);
  return with(splits, filling_words(r.max_seqlen_k, splits, workgroups, r.compute_units));
}

Plan split(const PlanRequest& r, std::int64_t splits, const std::string& why) {
  std::string words = (r.coded ? "decode over a cache of 8 bits; " : "") + count(r.max_seqlen_q, "row") +
                      " of " + count(r.nheads / r.nheads_k, "head") + " packed for each head of keys; " + why;
  return {Path::split, static_cast<std::int32_t>(splits), words};
}

Plan automatic(const PlanRequest& r) {
  const Choice& choice = choice_of(r);
  const std::int64_t workgroups = workgroups_of(r);
  const std::int64_t splits = workgroups == 0 || r.compute_units < 1
                                  ? 1
                                  : splits_to_fill(workgroups, places_of(r) * r.compute_units,
                                                   most_parts(r.max_seqlen_k, choice.keys), choice.filled);
  return split(r, splits, filling_words(r.max_seqlen_k, splits, workgroups, r.compute_units));
}

Plan requested(const PlanRequest& r, bool few) {
  const std::int64_t keys = forward_config(split_op(r), r.arch, r.dtype, static_cast<int>(r.head_dim)).keys;
  const std::int64_t splits = std::min(r.num_splits, most_parts(r.max_seqlen_k, keys));
  if (splits == 1 && !few) return whole(r, count(r.max_seqlen_q, "query row") + ", keys not split");
  return split(r, splits, wanted_words(r.num_splits, splits, r.max_seqlen_k));
}

bool packable(const PlanRequest& r) { return r.max_seqlen_q <= kMaxLength / (r.nheads / r.nheads_k); }

// Codes of 8 bits: only kernels of few queries read them. With another path there is no kernel.
Plan of_codes(const PlanRequest& r) {
  const auto none = [](const std::string& why) { return Plan{Path::reference, 1, why}; };
  if (!r.kernels.has(split_op(r))) {
    return none(std::string(name(r.arch)) + " has none for " + std::string(name(r.dtype)) +
                " with head_dim " + std::to_string(r.head_dim));
  }
  if (!r.aligned) return none(kUnalignedCodes);
  if (r.masked) return none("its kernels read no mask");
  if (r.dropout) return none(refusal_of(split_op(r)));
  if (r.max_seqlen_q > kFewQueries) {
    return none(count(r.max_seqlen_q, "query row") + ", and its kernels take up to " +
                std::to_string(kFewQueries));
  }
  if (r.nheads_k == 0) return {Path::split, 1, "nothing to compute"};
  if (!packable(r)) return none(kUnpackable);
  return r.num_splits > 0 ? requested(r, true) : automatic(r);
}

// Parts of the keys that kernels of a path can compute.
std::int64_t most_parts_of(Path path, const PlanRequest& r) {
  if (path != Path::split && path != Path::wide) return 1;
  const FwdConfig config =
      forward_config(op_of(path, {false, r.coded}), r.arch, r.dtype, static_cast<int>(r.head_dim));
  return config.keys > 0 ? most_parts(r.max_seqlen_k, config.keys) : 1;
}

}  // namespace

int compute_units_of(std::string_view arch, const Counted& counted) {
  const Gpu* gpu = find_gpu(arch);
  if (gpu == nullptr) return counted.physical;
  const ArchTraits t = traits(gpu->code_object);
  const bool pairs =
      counted.physical == counted.multiprocessors && counted.threads > t.wave * t.simds * t.waves_per_simd;
  return pairs ? counted.physical * t.cus_of_workgroup : counted.physical;
}

Plan plan(const PlanRequest& r) {
  if (r.coded) return of_codes(r);
  if (r.kernels.has(Op::fwd_wide)) return wide(r);
  if (!r.kernels.has(Op::fwd)) {
    return {Path::reference, 1, "no other kernel has head_dim " + std::to_string(r.head_dim)};
  }
  if (!r.aligned) return {Path::reference, 1, kUnaligned};
  if (r.masked) return whole(r, "a mask: keys are not split");
  if (r.dropout) return whole(r, "dropout: keys are not split");
  if (r.kernels.has(Op::fwd_uneven) && r.max_seqlen_q > kFewQueries) {
    return {
        Path::uneven, 1,
        "a kernel for head_dim " + std::to_string(r.head_dim) + " and another one of v; keys are not split"};
  }
  if (r.nheads_k == 0 || r.max_seqlen_q == 0 || r.batch == 0) return whole(r, "nothing to compute");
  const bool few = r.max_seqlen_q <= kFewQueries;
  if (!packable(r)) return whole(r, kUnpackable);
  if (r.num_splits > 0) return requested(r, few);
  if (choice_of(r).kernels == Chosen::split) return automatic(r);
  if (tall_pays(r)) return tall(r);
  const std::string rows = count(r.max_seqlen_q, "query row");
  if (few) return whole(r, rows + ", heads not packed");
  return whole(r, rows + ": more than " + std::to_string(kFewQueries) + " fill the waves of a workgroup");
}

std::string misfit(Path path, const PlanRequest& r, bool featured) {
  const bool takes_masks = path == Path::matrix || path == Path::tiled;
  if (path == Path::latent || path == Path::fp8 || path == Path::int8) return "it has its own calls";
  if (r.coded && path != Path::split) return "its kernels read no codes of 8 bits";
  if (path != Path::reference && !r.aligned) return r.coded ? kUnalignedCodes : kUnaligned;
  if (r.masked && !takes_masks) return "its kernels read no mask";
  const Op op = op_of(path, {false, r.coded});
  const bool asked = is_plain(op) ? featured : r.dropout;
  if (const std::string refusal = refusal_of(op); asked && !refusal.empty()) return refusal;
  if (path == Path::split && !packable(r)) return kUnpackable;
  const std::int64_t most = most_parts_of(path, r);
  if (r.num_splits <= most) return "";
  return too_many_parts(most, r.num_splits);
}

std::string too_many_parts(std::int64_t most, std::int64_t given) {
  return "expected at most " + count(most, "part") + " of its keys, got " + std::to_string(given);
}

std::int64_t most_latent_parts(Op op, Gfx arch, DType dtype, int head_dim, std::int64_t seqlen_k) {
  return most_parts(seqlen_k, forward_config(op, arch, dtype, head_dim).keys);
}

Plan latent_plan(const LatentRequest& r) {
  const int head_dim = static_cast<int>(r.head_dim);
  const Op op = latent_op(r.coded, r.scaled);
  const bool eight = r.coded || r.scaled;
  const std::string over = r.scaled  ? "over rows of " + std::to_string(kScaledRowBytes) + " bytes; "
                           : r.coded ? "over a cache of 8 bits; "
                                     : "";
  const std::string how = over + "all heads packed; ";
  const auto with = [&how](std::int64_t splits, const std::string& why) {
    return Plan{Path::latent, static_cast<std::int32_t>(splits), how + why};
  };
  if (r.num_splits > 0) {
    const std::int64_t splits =
        std::min(r.num_splits, most_latent_parts(op, r.arch, r.dtype, head_dim, r.seqlen_k));
    return with(splits, wanted_words(r.num_splits, splits, r.seqlen_k));
  }
  const std::int64_t rows = forward_tile(op, r.arch, r.dtype, head_dim).block_m;
  const std::int64_t workgroups = r.batch * ceil_div(std::min(r.seqlen_q * r.nheads, kMaxLength), rows);
  const int regime = regime_of({r.seqlen_q, r.seqlen_k, r.nheads, false});  // not told of causal ones
  const Choice& choice = choice_of(regime, r.arch, r.dtype, r.head_dim);
  const std::int64_t places = eight ? held_by_unit(op, r) : choice.places;
  const std::int64_t splits = workgroups == 0 || r.compute_units < 1
                                  ? 1
                                  : splits_to_fill(workgroups, places * r.compute_units,
                                                   most_parts(r.seqlen_k, choice.keys), choice.filled);
  return with(splits, filling_words(r.seqlen_k, splits, workgroups, r.compute_units));
}

}  // namespace fa
