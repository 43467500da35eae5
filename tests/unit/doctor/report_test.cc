// The doctor's output: columns, scaled numbers, colour, JSON.
#include "doctor/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace lumen::doctor {
namespace {

using testing::HasSubstr;

TEST(DoctorReport, NumbersAreScaledWithTheirUnit) {
  const auto shown = [](Finding finding) { return to_text({{"x", std::move(finding)}}, false); };
  EXPECT_THAT(shown(number(1536, "bytes")), HasSubstr(" 1.5 KiB "));
  EXPECT_THAT(shown(number(999, "bytes", "free")), HasSubstr(" 999 bytes, free "));
  EXPECT_THAT(shown(number(21'600, "ns")), HasSubstr(" 21.6 us "));
  EXPECT_THAT(shown(number(2, "", "usable")), HasSubstr(" 2 usable "));
  EXPECT_THAT(shown(number(1.5, "CPUs")), HasSubstr(" 1.5 CPUs "));
}

TEST(DoctorReport, NoLineIsWiderThanATerminal) {
  const std::string words = "a long word and many more of them that go on and on ";
  const std::string shown =
      to_text({{"hardware counters", text(words + words).warn(words + words, words + words)},
               {"y", unknown(std::string(200, 'x'))}},
              false);
  std::istringstream lines(shown);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kColumns) << line;
}

TEST(DoctorReport, AWarningIsFollowedByItsMendAndTheEndCounts) {
  const std::string shown = to_text({{"swap", number(1024, "bytes").warn("swapoff -a", "no disk")},
                                     {"kernel", text("6.1")},
                                     {"THP", unknown("/sys: no such file")}},
                                    false);
  EXPECT_THAT(shown, HasSubstr("warn\n    > swapoff -a\n      no disk\nkernel "));
  EXPECT_THAT(shown, HasSubstr("not readable: /sys: no such file"));
  EXPECT_TRUE(shown.ends_with("\n\n1 ok, 1 warn, 1 unknown\n")) << shown;
}

TEST(DoctorReport, ColourIsOnTheStateAlone) {
  const std::vector<Line> lines = {{"kernel", text("6.1")}};
  EXPECT_EQ(to_text(lines, false).find('\033'), std::string::npos);
  EXPECT_THAT(to_text(lines, true), HasSubstr("\033[32mok\033[0m\n"));
}

TEST(DoctorReport, JsonHasNumbersAsNumbersAndMendsWhereThereAreAny) {
  const nlohmann::ordered_json json =
      to_json({{"swap", number(1024, "bytes", "used").warn("swapoff -a", "no disk")},
               {"kernel", text("6.1")}});
  EXPECT_EQ(json.dump(), R"([{"name":"swap","value":1024.0,"unit":"bytes","note":"used",)"
                         R"("status":"warn","mend":"swapoff -a","gain":"no disk"},)"
                         R"({"name":"kernel","value":"6.1","status":"ok"}])");
}

}  // namespace
}  // namespace lumen::doctor
