// The scheduler: waves of a workgroup in a seeded random order, workgroups over threads.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <iterator>
#include <mutex>
#include <random>
#include <thread>

#include <time.h>

#include "checks/shadow.hpp"
#include "code/decode.hpp"
#include "run/outcomes.hpp"
#include "run/setup.hpp"

namespace emu {
void fail(const Wave& w, const Inst& in, const std::string& what) {
  const Program& p = *w.program;
  throw Error("kernel '" + w.launch->kernel->name + "' at " + p.where(in.address) + ", '" + p.lines[in.text] +
              "': " + what);
}

namespace {
std::string describe(const Group& g) {
  return "group (" + std::to_string(g.id[0]) + "," + std::to_string(g.id[1]) + "," + std::to_string(g.id[2]) +
         ")";
}

std::string seconds(f64 count) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", count);
  return text;
}

void trace(const Wave& w, const Inst& in) {
  std::fprintf(stderr, "w%u %s  %s\n", w.index, w.program->where(in.address).c_str(),
               w.program->lines[in.text].c_str());
}

u64 thread_nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<u64>(now.tv_sec) * 1000000000u + static_cast<u64>(now.tv_nsec);
}

// One host thread's share of its launch's processor time. `spent` is the sum over all threads.
class Meter {
 public:
  Meter(std::atomic<u64>& spent, f64 max_seconds)
      : spent_(spent), limit_(max_seconds * 1e9), last_(limit_ > 0 ? thread_nanoseconds() : 0) {}
  // Called once a turn. Reads the clock in few turns: a reading takes as long as some instructions, and under
  // wine it asks another process.
  bool over_limit() {
    if (!(limit_ > 0) || ++turns_ % kTurns) return false;
    u64 now = thread_nanoseconds();
    spent_ += now - last_;
    last_ = now;
    return static_cast<f64>(spent_) > limit_;
  }

 private:
  static constexpr u32 kTurns = 1024;
  std::atomic<u64>& spent_;
  f64 limit_;
  u64 last_;
  u32 turns_ = 0;
};

// Stops the launch: a finding at the wave's next instruction, and an error with the same text.
[[noreturn]] void stop(const Wave& w, u32 inst, const char* kind, const std::string& what) {
  Finding f;
  f.kind = kind;
  f.inst = inst;
  std::copy(w.group->id, w.group->id + 3, f.group);
  f.wave = static_cast<int>(w.index);
  f.detail = what;
  w.group->report.add(f);
  const Program& p = *w.program;
  throw Error("kernel '" + w.launch->kernel->name + "', " + describe(*w.group) + " wave " +
              std::to_string(w.index) + ": " + what + ", now at " + p.where(p.code[inst].address));
}

// The accesses of an LDS instruction, before it runs: see Record.
void record_lds(Wave& w, const Inst& in) {
  alignas(64) u32 ta[kLanes];
  const u32* address = ta;
  if (in.nsrc)
    address = read_raw(w, in.src[0], ta);
  else  // ds_*_addtid
    for (u32 i = 0; i < kLanes; ++i) ta[i] = (w.s[kM0] & 0xffff) + 4 * i;
  std::vector<u32>& out = w.record->lds;
  const u32 head[] = {w.pc, static_cast<u32>(w.exec), static_cast<u32>(w.exec >> 32),
                      static_cast<u32>(in.offset), static_cast<u32>(in.offset1)};
  out.insert(out.end(), std::begin(head), std::end(head));
  out.insert(out.end(), address, address + w.n);
}

// Up to `quantum` instructions of one wave. The plain version is compiled without shadow checks.
template <bool kChecked>
void run_wave(Wave& w, u64 quantum, u64* counts, u64* active) {
  const Inst* code = w.program->code.data();
  const size_t size = w.program->code.size();
  u64 limit = w.launch->options.max_instructions;
  u8* seen = kChecked && w.launch->options.outcomes ? w.group->outcomes.data() : nullptr;
  Outcomes outcomes;
  Inst moved;
  for (; quantum && w.state == State::running; --quantum) {
    if (w.next >= size) fail(w, code[w.pc], "the code ends behind it, without s_endpgm");
    w.pc = w.next++;
    const bool moves = (w.mode & kGprIndexed) | (code[w.pc].aux & kMovrel);
    const Inst& in = moves ? moved = indexed(w, code[w.pc]) : code[w.pc];
    ++counts[w.pc];
    active[w.pc] += static_cast<u64>(__builtin_popcountll(w.exec));
    if (kChecked) {
      if (w.launch->options.trace) trace(w, in);
      if (w.record) {
        w.record->executed.push_back(w.pc | static_cast<u32>(__builtin_popcountll(w.exec)) << 24);
        if (in.op->cls == Class::lds) record_lds(w, in);
      }
      if (w.launch->check(Check::uninit)) shadow_step(w, in);
      if (seen) outcomes.before(w, in);
    }
    in.run(w, in);
    if (kChecked && seen) seen[w.pc] |= outcomes.after(w, in);
    if (kChecked && w.launch->check(Check::uninit)) shadow_result(w, in);
    if (++w.executed > limit)
      stop(w, w.pc, "endless-loop",
           "endless loop? more than " + std::to_string(limit) + " instructions in one wave");
  }
}

void barrier_finding(Group& g, const Wave& w, const std::string& detail) {
  Finding f;
  f.kind = "barrier-divergence";
  f.detail = detail;
  f.inst = w.barrier_pc;
  std::copy(g.id, g.id + 3, f.group);
  f.wave = static_cast<int>(w.index);
  g.report.add(f);
}

// After a barrier, all waves know the past of each other: up to the barrier, up to its signal, or up to the
// end.
void pass_on(Group& g) {
  const auto told = [](const Wave& w) -> const Clock& { return w.signalled ? w.at_signal : w.clock; };
  // Accesses between the two halves of a barrier are unordered by it, so they are kept.
  if (std::none_of(g.waves.begin(), g.waves.end(), [](auto& w) { return w->lds_since_signal; }))
    g.next_lds_epoch();
  Clock all = told(*g.waves[0]);
  for (auto& w : g.waves) all.hear(told(*w));
  for (auto& w : g.waves) {
    w->clock.hear(all);
    w->clock.advance();
  }
}

// All waves are waiting or have ended: let the waiting ones go on. They may wait at different instructions:
// the hardware counts arrivals.
void release_barrier(Group& g) {
  bool some_done = false;
  for (auto& w : g.waves) some_done |= w->state == State::done;
  for (auto& p : g.waves) {
    Wave& w = *p;
    if (w.state != State::barrier) continue;
    if (g.launch->check(Check::barrier)) {
      if (some_done)
        barrier_finding(g, w, "waits at a barrier although another wave of the workgroup has ended");
      if (w.exec != w.launched)
        barrier_finding(g, w, "reached with some work items of the wave switched off");
    }
    w.state = State::running;
  }
  if (g.launch->check(Check::race)) pass_on(g);
  for (auto& w : g.waves) w->signalled = w->lds_since_signal = false;
}

// All waves wait: a wave waiting at a resource waits forever.
void refuse_deadlock(const Group& g) {
  for (auto& w : g.waves)
    if (w->state == State::global_barrier)
      fail(*w, w->program->code[w->pc], "waits for waves that do not come; those of other workgroups cannot");
}

// In step: the next running wave after the last one.
Wave& next_in_step(const std::vector<Wave*>& ready, u32 last) {
  const auto behind = [=](const Wave* w) { return w->index > last; };
  const auto next = std::find_if(ready.begin(), ready.end(), behind);
  return **(next == ready.end() ? ready.begin() : next);
}

void run_group(Group& g, u64 seed, Meter& meter) {
  Launch& l = *g.launch;
  start_group(g, seed);
  std::mt19937_64 rng(seed ^ 0x9e3779b97f4a7c15ull);
  bool checked = l.options.checks & static_cast<u32>(Check::uninit) || l.options.trace || l.options.record ||
                 l.options.outcomes;
  std::vector<Wave*> ready;
  u32 last = 0;
  for (;;) {
    ready.clear();
    bool waiting = false;
    for (auto& w : g.waves) {
      if (w->state == State::running) ready.push_back(w.get());
      waiting |= w->state == State::barrier;
    }
    if (ready.empty()) {
      refuse_deadlock(g);
      if (!waiting) break;
      release_barrier(g);
      continue;
    }
    Wave& w = l.options.quantum == 1 ? next_in_step(ready, last) : *ready[rng() % ready.size()];
    last = w.index;
    if (meter.over_limit())
      stop(w, w.pc, "time-limit", "more than " + seconds(l.options.max_seconds) + " of processor time");
    u64 quantum = 1 + rng() % l.options.quantum;
    if (checked)
      run_wave<true>(w, quantum, g.counts.data(), g.active.data());
    else
      run_wave<false>(w, quantum, g.counts.data(), g.active.data());
  }
}

// The outcome of one workgroup, at its position in the order of execution.
struct Outcome {
  Report report;
  GroupTrace trace;
  std::exception_ptr error;
};

struct Worker {
  Launch& l;
  const std::vector<u32>& order;
  std::vector<Outcome>& outcomes;
  std::atomic<size_t>& next;
  std::atomic<u64>& spent;
  std::mutex& mutex;

  void operator()() {
    thread_local Group g;  // its memory serves the next launch, too
    g.launch = &l;
    g.forget_touched();
    g.told.clear();
    g.global_barriers.clear();
    g.counts.assign(l.program->code.size(), 0);
    g.active.assign(l.program->code.size(), 0);
    g.outcomes.assign(l.program->code.size(), 0);
    Meter meter(spent, l.options.max_seconds);
    for (size_t i; (i = next++) < order.size();) one(g, i, meter);
    std::lock_guard<std::mutex> lock(mutex);
    for (size_t i = 0; i < g.counts.size(); ++i) {
      l.counts[i] += g.counts[i];
      l.lanes_active[i] += g.active[i];
      l.outcomes[i] |= g.outcomes[i];
    }
  }
  void one(Group& g, size_t i, Meter& meter) {
    g.linear = order[i];
    g.id[0] = g.linear % l.grid[0];
    g.id[1] = g.linear / l.grid[0] % l.grid[1];
    g.id[2] = g.linear / l.grid[0] / l.grid[1];
    try {
      run_group(g, l.options.seed * 0x100000001b3ull + g.linear, meter);
    } catch (...) {
      outcomes[i].error = std::current_exception();
      next = order.size();
    }
    outcomes[i].report = std::move(g.report);
    if (!l.alone) outcomes[i].trace = {g.linear, spans_of(g)};
  }
};

// Up to the first failed workgroup: later ones may have run or not.
void collect(Launch& l, std::vector<Outcome>& outcomes) {
  std::vector<GroupTrace> traces;
  for (Outcome& o : outcomes) {
    l.report.add(o.report);
    traces.push_back(std::move(o.trace));
    if (o.error) std::rethrow_exception(o.error);
  }
  races_across(l, traces);
}
}  // namespace

void run_launch(Launch& l) {
  prepare_launch(l);
  std::vector<u32> order;
  u64 total = static_cast<u64>(l.grid[0]) * l.grid[1] * l.grid[2];
  if (l.options.only_group < 0)
    for (u64 i = 0; i < total; ++i) order.push_back(static_cast<u32>(i));
  else if (static_cast<u64>(l.options.only_group) < total)
    order.push_back(static_cast<u32>(l.options.only_group));
  std::shuffle(order.begin(), order.end(), std::mt19937_64(l.options.seed));
  std::vector<Outcome> outcomes(order.size());
  std::atomic<size_t> next{0};
  std::atomic<u64> spent{0};
  std::mutex mutex;
  Worker worker{l, order, outcomes, next, spent, mutex};
  std::vector<std::thread> threads;
  u64 wanted = l.alone ? 1 : std::min<u64>(l.options.threads, order.size());
  for (u64 i = 1; i < wanted; ++i) threads.emplace_back(worker);
  worker();
  for (auto& t : threads) t.join();
  collect(l, outcomes);
}
}  // namespace emu
