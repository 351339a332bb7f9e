// The scheduler: waves of a workgroup in a seeded random order, workgroups over threads.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <random>
#include <thread>

#include "setup.hpp"
#include "shadow.hpp"

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

void trace(const Wave& w, const Inst& in) {
  std::fprintf(stderr, "w%u %s  %s\n", w.index, w.program->where(in.address).c_str(),
               w.program->lines[in.text].c_str());
}

// Up to `quantum` instructions of one wave. Shadow checks are compiled out of the plain version.
template <bool kChecked>
void run_wave(Wave& w, u64 quantum, u64* counts, u64* active) {
  const Inst* code = w.program->code.data();
  u64 limit = w.launch->options.max_instructions;
  for (; quantum && w.state == State::running; --quantum) {
    w.pc = w.next++;
    const Inst& in = code[w.pc];
    ++counts[w.pc];
    active[w.pc] += static_cast<u64>(__builtin_popcountll(w.exec));
    if (kChecked) {
      if (w.launch->options.trace) trace(w, in);
      if (w.record) w.record->push_back(w.pc | static_cast<u32>(__builtin_popcountll(w.exec)) << 24);
      if (w.launch->check(Check::uninit)) shadow_step(w, in);
    }
    in.run(w, in);
    if (kChecked && w.launch->check(Check::uninit)) shadow_result(w, in);
    if (++w.executed > limit) {
      Finding f;
      f.kind = "endless-loop";
      f.inst = w.pc;
      std::copy(w.group->id, w.group->id + 3, f.group);
      f.wave = static_cast<int>(w.index);
      f.detail = "more than " + std::to_string(limit) + " instructions in one wave";
      w.group->report.add(f);
      throw Error("kernel '" + w.launch->kernel->name + "', " + describe(*w.group) + " wave " +
                  std::to_string(w.index) + ": endless loop? more than " + std::to_string(limit) +
                  " instructions, now at " + w.program->where(in.address));
    }
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

// What a wave did before a barrier, or before its end, is known to all that leave the barrier.
void pass_on(Group& g) {
  Clock all = g.waves[0]->clock;
  for (auto& w : g.waves) all.hear(w->clock);
  for (auto& w : g.waves) {
    w->clock.hear(all);
    w->clock.advance();
  }
}

// All waves wait or have ended: let the waiting ones go on.
void release_barrier(Group& g) {
  const Wave* first = nullptr;
  bool some_done = false;
  for (auto& w : g.waves) some_done |= w->state == State::done;
  for (auto& p : g.waves) {
    Wave& w = *p;
    if (w.state != State::barrier) continue;
    if (g.launch->check(Check::barrier)) {
      if (!first) first = &w;
      if (some_done)
        barrier_finding(g, w, "waits at a barrier although another wave of the workgroup has ended");
      if (first->barrier_pc != w.barrier_pc)
        barrier_finding(g, w,
                        "waits at another barrier than wave " + std::to_string(first->index) + " (at " +
                            g.launch->program->where(g.launch->program->code[first->barrier_pc].address) +
                            ")");
      if (w.exec != w.launched)
        barrier_finding(g, w, "reached with some work items of the wave switched off");
    }
    w.state = State::running;
  }
  if (g.launch->check(Check::race)) pass_on(g);
}

void run_group(Group& g, u64 seed) {
  Launch& l = *g.launch;
  start_group(g, seed);
  std::mt19937_64 rng(seed ^ 0x9e3779b97f4a7c15ull);
  bool checked = l.options.checks & static_cast<u32>(Check::uninit) || l.options.trace || l.options.record;
  std::vector<Wave*> ready;
  for (;;) {
    ready.clear();
    bool waiting = false;
    for (auto& w : g.waves) {
      if (w->state == State::running) ready.push_back(w.get());
      waiting |= w->state == State::barrier;
    }
    if (ready.empty()) {
      if (!waiting) break;
      release_barrier(g);
      continue;
    }
    Wave& w = *ready[rng() % ready.size()];
    u64 quantum = 1 + rng() % l.options.quantum;
    if (checked)
      run_wave<true>(w, quantum, g.counts.data(), g.active.data());
    else
      run_wave<false>(w, quantum, g.counts.data(), g.active.data());
  }
}

// What became of one workgroup, at its place in the order of execution.
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
  std::mutex& mutex;

  void operator()() {
    Group g;
    g.launch = &l;
    g.counts.assign(l.program->code.size(), 0);
    g.active.assign(l.program->code.size(), 0);
    for (size_t i; (i = next++) < order.size();) one(g, i);
    std::lock_guard<std::mutex> lock(mutex);
    for (size_t i = 0; i < g.counts.size(); ++i) {
      l.counts[i] += g.counts[i];
      l.lanes_active[i] += g.active[i];
    }
  }
  void one(Group& g, size_t i) {
    g.linear = order[i];
    g.id[0] = g.linear % l.grid[0];
    g.id[1] = g.linear / l.grid[0] % l.grid[1];
    g.id[2] = g.linear / l.grid[0] / l.grid[1];
    try {
      run_group(g, l.options.seed * 0x100000001b3ull + g.linear);
    } catch (...) {
      outcomes[i].error = std::current_exception();
      next = order.size();
    }
    outcomes[i].report = std::move(g.report);
    if (!l.alone) outcomes[i].trace = {g.linear, spans_of(g)};
  }
};

// Up to the first workgroup that failed: those behind it may or may not have run.
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
  for (u64 i = 0; i < total; ++i)
    if (l.options.only_group < 0 || static_cast<u64>(l.options.only_group) == i)
      order.push_back(static_cast<u32>(i));
  std::shuffle(order.begin(), order.end(), std::mt19937_64(l.options.seed));
  std::vector<Outcome> outcomes(order.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Worker worker{l, order, outcomes, next, mutex};
  std::vector<std::thread> threads;
  u64 wanted = l.alone ? 1 : std::min<u64>(l.options.threads, order.size());
  for (u64 i = 1; i < wanted; ++i) threads.emplace_back(worker);
  worker();
  for (auto& t : threads) t.join();
  collect(l, outcomes);
}
}  // namespace emu
