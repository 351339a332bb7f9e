// Pieces of the disassembler's text.
#pragma once
#include <cstdlib>
#include <string>
#include <vector>

namespace emu {
using Strings = std::vector<std::string>;

inline bool starts(const std::string& s, const char* p) { return s.rfind(p, 0) == 0; }
inline bool ends(const std::string& s, const std::string& p) {
  return s.size() >= p.size() && s.compare(s.size() - p.size(), p.size(), p) == 0;
}
inline std::string trim(const std::string& s) {
  size_t a = s.find_first_not_of(" \t"), b = s.find_last_not_of(" \t\r\n");
  return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}
// Splits at a separator outside brackets.
inline Strings split(const std::string& s, char sep) {
  Strings out;
  std::string cur;
  int depth = 0;
  for (char c : s) {
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == sep && depth == 0) {
      out.push_back(trim(cur));
      cur.clear();
    } else {
      cur += c;
    }
  }
  if (!trim(cur).empty()) out.push_back(trim(cur));
  return out;
}
inline std::vector<int> numbers(const std::string& list) {  // "[1,0,3]"
  std::vector<int> out;
  for (auto& s : split(list.substr(1, list.size() - 2), ',')) out.push_back(std::atoi(s.c_str()));
  return out;
}
inline bool is_number(const std::string& s) {
  size_t i = s[0] == '-' ? 1 : 0;
  return i < s.size() && s[i] >= '0' && s[i] <= '9';
}
}  // namespace emu
