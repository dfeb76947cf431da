// libgtest-dev: gtest; pthread
#include <gtest/gtest.h>
#include <stdexcept>

TEST(Arithmetic, Adds) { EXPECT_EQ(1 + 1, 2); }
TEST(Arithmetic, Throws) { EXPECT_THROW(throw std::runtime_error("x"), std::runtime_error); }
TEST(Arithmetic, FailsOnPurpose) { EXPECT_STREQ("one", "two"); }
class Numbers : public testing::TestWithParam<int> {};
TEST_P(Numbers, ArePositive) { EXPECT_GT(GetParam(), 0); }
INSTANTIATE_TEST_SUITE_P(Some, Numbers, testing::Values(1, 2, 3));

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    testing::GTEST_FLAG(print_time) = false;
    return RUN_ALL_TESTS();
}
