#include "settings.hpp"

#include <cstdlib>
#include <map>
#include <sstream>

#include "checks/sanitize.hpp"
#include "failure.hpp"

namespace fake_hip {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

[[noreturn]] void refuse(const std::string& what) { throw Failure(hipErrorNotInitialized, what); }

std::uint64_t number(const std::string& text, const std::string& what) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) {
    refuse(what + ": expected a whole number, found '" + text + "'");
  }
  return std::stoull(text);
}

std::uint64_t number_or(const char* name, std::uint64_t otherwise) {
  const std::string text = environment(name);
  return text.empty() ? otherwise : number(text, name);
}

std::uint32_t parse_checks(const std::string& text) {
  static const auto& known = *new std::map<std::string, emu::Check>{{"uninit", emu::Check::uninit},
                                                                    {"race", emu::Check::race},
                                                                    {"barrier", emu::Check::barrier},
                                                                    {"align", emu::Check::align}};
  std::uint32_t checks = 0;
  for (const std::string& name : split(text)) {
    const auto found = known.find(name);
    if (found == known.end()) refuse("FA_FAKE_HIP_CHECKS: '" + name + "' is no check");
    checks |= static_cast<std::uint32_t>(found->second);
  }
  return checks;
}

// Whether a variable has the second of two values; the first is the default.
bool parse_choice(const std::string& variable, const std::string& first, const std::string& second) {
  const std::string text = environment(variable.c_str());
  if (text != "" && text != first && text != second) {
    refuse(variable + ": expected " + first + " or " + second + ", found '" + text + "'");
  }
  return text == second;
}

PlannedFailure parse_failure(const std::string& text) {
  const std::string what = "a failure ('" + text + "', expected call=error or call=error@time)";
  const std::size_t equals = text.find('='), at = text.find('@');
  if (equals == std::string::npos || equals == 0) refuse(what);
  const std::string error = text.substr(equals + 1, at == std::string::npos ? at : at - equals - 1);
  const std::uint64_t only = at == std::string::npos ? 0 : number(text.substr(at + 1), what);
  return {text.substr(0, equals), static_cast<int>(number(error, what)), only};
}

}  // namespace

std::vector<PlannedFailure> parse_failures(const std::string& text) {
  std::vector<PlannedFailure> failures;
  for (const std::string& part : split(text)) failures.push_back(parse_failure(part));
  return failures;
}

Settings read_settings() {
  Settings settings;
  settings.archs = split(environment("FA_FAKE_HIP_ARCH"));
  settings.disassembly = environment("FA_FAKE_HIP_DISASSEMBLY");
  settings.failures = parse_failures(environment("FA_FAKE_HIP_FAIL"));
  settings.seed = number_or("FA_FAKE_HIP_SEED", 0);
  settings.threads = static_cast<std::uint32_t>(number_or("FA_FAKE_HIP_THREADS", 1));
  settings.max_seconds = static_cast<double>(number_or("FA_FAKE_HIP_TIME_LIMIT", 0));
  settings.checks = parse_checks(environment("FA_FAKE_HIP_CHECKS"));
  settings.counts_pairs = parse_choice("FA_FAKE_HIP_UNITS", "single", "pairs");
  settings.skips_launches = parse_choice("FA_FAKE_HIP_LAUNCH", "execute", "skip");
  settings.outcomes = number_or("FA_FAKE_HIP_OUTCOMES", 0) != 0;
  return settings;
}

}  // namespace fake_hip
