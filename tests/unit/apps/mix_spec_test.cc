// The meaning of the words of `lumen bench --mix`, and the errors for wrong ones.
#include <lumen/client/mix_spec.h>

#include <lumen/client/mix_plan.h>
#include "client/weighted_choice.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace lumen::client {
namespace {

using Words = std::vector<std::string>;

MixSpec spec_of(const Words& mix, const Words& clients = {}, const Words& rate = {}) {
  auto spec = parse_mix(mix, clients, rate);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.ok() ? *spec : MixSpec{};
}

std::string error_of(const Words& mix, const Words& clients = {}, const Words& rate = {}) {
  const auto spec = parse_mix(mix, clients, rate);
  return spec.ok() ? std::string() : std::string(spec.status().message());
}

std::vector<MixTarget> targets_of(const MixSpec& spec) {
  std::vector<MixTarget> targets;
  for (const MixModel& model : spec.models) {
    targets.push_back({model, "", {}});
    targets.back().plan.request = "request of " + model.name;
  }
  return targets;
}

TEST(MixSpec, ClientsThatNameNoModelChooseByWeight) {
  const MixSpec spec = spec_of({"mlp:0.9", "squeezenet:0.1"}, {"4", "16"});
  EXPECT_TRUE(spec.is_shared);
  EXPECT_EQ(spec.rows, (std::vector<uint32_t>{4, 16}));
  const auto plans = mix_plans(targets_of(spec), spec.is_shared, 16);
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].clients, 16u);
  EXPECT_FALSE(plans[0].is_open_loop());
  ASSERT_EQ(plans[0].mix.size(), 2u);
  EXPECT_EQ(plans[0].mix[1].request, "request of squeezenet");
  EXPECT_EQ(plans[0].mix[1].weight, 0.1);
}

TEST(MixSpec, WithoutClientsItHasTheRowsOfOneModel) {
  const auto defaults = parse_clients({});
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(spec_of({"a", "b"}).rows, *defaults);
}

TEST(MixSpec, ClientsOfAModelAskForNoOther) {
  const MixSpec spec = spec_of({"mlp", "squeezenet"}, {"mlp:1", "squeezenet:4"});
  EXPECT_FALSE(spec.is_shared);
  ASSERT_EQ(spec.rows, std::vector<uint32_t>{0});
  const auto plans = mix_plans(targets_of(spec), spec.is_shared, 0);
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0].clients, 1u);
  EXPECT_EQ(plans[1].clients, 4u);
  EXPECT_TRUE(plans[1].mix.empty());
}

TEST(MixSpec, OneRateIsDividedByWeight) {
  const MixSpec spec = spec_of({"a:3", "b:1"}, {"8"}, {"1000"});
  const auto plans = mix_plans(targets_of(spec), spec.is_shared, spec.rows.at(0));
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_DOUBLE_EQ(plans[0].rate, 750);
  EXPECT_DOUBLE_EQ(plans[1].rate, 250);
  EXPECT_EQ(plans[0].clients, 8u);  // of each: none waits for a connection of the other's
  EXPECT_EQ(plans[1].clients, 8u);
}

TEST(MixSpec, OneModelHasARateWhileAnotherIsInAClosedLoop) {
  const MixSpec spec = spec_of({"mlp", "squeezenet"}, {"squeezenet:4"}, {"mlp:1000"});
  const auto plans = mix_plans(targets_of(spec), spec.is_shared, 0);
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0].rate, 1000);
  EXPECT_EQ(plans[0].clients, kOpenLoopClients);
  EXPECT_FALSE(plans[1].is_open_loop());
  EXPECT_EQ(plans[1].clients, 4u);
}

TEST(MixSpec, AModelsNameMayHaveAColonWhereItsWeightIsGiven) {
  EXPECT_EQ(spec_of({"a:b:2", "c"}).models.at(0).name, "a:b");
}

TEST(MixSpec, WrongWordsAreToldWithTheWantedForm) {
  struct Case {
    Words mix, clients, rate;
    std::string wanted;
  };
  const std::vector<Case> cases = {
      {{"a:0", "b"}, {}, {}, "--mix a:0: its weight is '0'; wanted a number above 0"},
      {{"a:-1", "b"}, {}, {}, "above 0"},
      {{"a:nan", "b"}, {}, {}, "above 0"},
      {{":1"}, {}, {}, "no model"},
      {{"a", "b", "a:2"}, {}, {}, "model 'a' is there twice"},
      {{"a", "b"}, {"c:4"}, {}, "the mix has no model 'c'; it has a, b"},
      {{"a", "b"}, {"a:1", "a:2"}, {}, "--clients: model 'a' is there twice"},
      {{"a", "b"}, {"a:1", "2"}, {}, "some have a model"},
      {{"a", "b"}, {"a:1"}, {}, "model 'b' has neither clients nor a rate"},
      {{"a", "b"}, {"0"}, {}, "--clients 0: wanted 1 to 10000"},
      {{"a", "b"}, {"1.5"}, {}, "whole number"},
      {{"a", "b"}, {}, {"a:-3"}, "--rate a:-3: wanted 0.001"},
      {{"a", "b"}, {}, {"c:3"}, "no model 'c'"},
      {{"a", "b"}, {}, {"1", "2"}, "2 numbers; wanted one"},
  };
  for (const Case& one : cases) {
    const std::string error = error_of(one.mix, one.clients, one.rate);
    EXPECT_NE(error.find(one.wanted), std::string::npos) << error << "; wanted " << one.wanted;
  }
}

TEST(MixSpec, WithoutAMixNoNumberHasAModel) {
  EXPECT_FALSE(parse_clients({"a:1"}).ok());
  EXPECT_FALSE(parse_rate({"a:1"}).ok());
  EXPECT_FALSE(parse_rate({"1", "2"}).ok());
  EXPECT_EQ(*parse_rate({}), 0);
  EXPECT_EQ(*parse_rate({"2.5"}), 2.5);
}

TEST(WeightedChoice, EachHasItsShareAtAnyTime) {
  const std::vector<double> weights = {6, 3, 1};
  for (const uint32_t stream : {0u, 1u, 7u}) {
    WeightedChoice choice(weights, stream);
    std::array<double, 3> counts{};
    for (int i = 1; i <= 5000; ++i) {
      ++counts.at(choice.next());
      for (size_t which = 0; which < weights.size(); ++which) {
        ASSERT_LT(std::abs(counts.at(which) - i * weights[which] / 10), 5) << i;
      }
    }
  }
}

TEST(WeightedChoice, IsTheSameEachTime) {
  WeightedChoice one({1, 2}, 3);
  WeightedChoice other({1, 2}, 3);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(one.next(), other.next());
}

}  // namespace
}  // namespace lumen::client
