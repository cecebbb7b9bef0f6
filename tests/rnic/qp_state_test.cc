#include "rnic/engine/requests/qp_state.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

// Every state against every target, with every attribute missing and every attribute too many. The
// expectations are written down here a second time, from the tables of ibv_modify_qp(3) and of
// clause 11.2.5.2, not taken from the code.
namespace ferry::rnic {
namespace {

constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                    IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

constexpr int kAllAttributes[] = {IBV_QP_CUR_STATE,
                                  IBV_QP_EN_SQD_ASYNC_NOTIFY,
                                  IBV_QP_ACCESS_FLAGS,
                                  IBV_QP_PKEY_INDEX,
                                  IBV_QP_PORT,
                                  IBV_QP_QKEY,
                                  IBV_QP_AV,
                                  IBV_QP_PATH_MTU,
                                  IBV_QP_TIMEOUT,
                                  IBV_QP_RETRY_CNT,
                                  IBV_QP_RNR_RETRY,
                                  IBV_QP_RQ_PSN,
                                  IBV_QP_MAX_QP_RD_ATOMIC,
                                  IBV_QP_ALT_PATH,
                                  IBV_QP_MIN_RNR_TIMER,
                                  IBV_QP_SQ_PSN,
                                  IBV_QP_MAX_DEST_RD_ATOMIC,
                                  IBV_QP_PATH_MIG_STATE,
                                  IBV_QP_CAP,
                                  IBV_QP_DEST_QPN,
                                  IBV_QP_RATE_LIMIT};

struct Row {
  int required;
  int optional;
};

using Rows = std::map<std::pair<ibv_qp_state, ibv_qp_state>, Row>;

const Rows& rows() {
  static const auto* table = [] {
    auto* rows = new Rows;
    for (ibv_qp_state from : kStates) {
      (*rows)[{from, IBV_QPS_RESET}] = {0, 0};
      (*rows)[{from, IBV_QPS_ERR}] = {0, 0};
    }
    (*rows)[{IBV_QPS_RESET, IBV_QPS_INIT}] = {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                                              0};
    (*rows)[{IBV_QPS_INIT, IBV_QPS_INIT}] = {0,
                                             IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS};
    (*rows)[{IBV_QPS_INIT, IBV_QPS_RTR}] = {
        IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
            IBV_QP_MIN_RNR_TIMER,
        IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX};
    (*rows)[{IBV_QPS_RTR, IBV_QPS_RTS}] = {IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
                                           IBV_QP_CUR_STATE | IBV_QP_ALT_PATH |
                                               IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
                                               IBV_QP_PATH_MIG_STATE | IBV_QP_RATE_LIMIT};
    (*rows)[{IBV_QPS_RTS, IBV_QPS_RTS}] = {0, IBV_QP_CUR_STATE | IBV_QP_ALT_PATH |
                                                  IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
                                                  IBV_QP_PATH_MIG_STATE | IBV_QP_RATE_LIMIT};
    (*rows)[{IBV_QPS_RTS, IBV_QPS_SQD}] = {0, IBV_QP_EN_SQD_ASYNC_NOTIFY};
    (*rows)[{IBV_QPS_SQD, IBV_QPS_RTS}] = {0, IBV_QP_CUR_STATE | IBV_QP_ALT_PATH |
                                                  IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
                                                  IBV_QP_PATH_MIG_STATE};
    (*rows)[{IBV_QPS_SQD, IBV_QPS_SQD}] = {
        0, IBV_QP_CUR_STATE | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
               IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PORT |
               IBV_QP_PATH_MIG_STATE};
    return rows;
  }();
  return *table;
}

// An initiator of XRC answers no requests, a target sends none (annex A14): what they lack are the
// attributes of the other half.
Rows without(Rows rows, int attributes) {
  for (auto& [states, row] : rows) {
    row.required &= ~attributes;
    row.optional &= ~attributes;
  }
  return rows;
}

// No responder resources and no acknowledgements; an error of the send queue leads to SQE.
Rows uc_rows() {
  Rows table = without(rows(), IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
                                   IBV_QP_MIN_RNR_TIMER);
  table[{IBV_QPS_SQE, IBV_QPS_RTS}] = {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS};
  return table;
}

// No peer either; the Q_Key instead of rights.
Rows ud_rows() {
  Rows table = without(uc_rows(), IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                      IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
  for (auto& [states, row] : table) {
    if ((row.required & IBV_QP_ACCESS_FLAGS) != 0) row.required |= IBV_QP_QKEY;
    if ((row.optional & IBV_QP_ACCESS_FLAGS) != 0) row.optional |= IBV_QP_QKEY;
  }
  table = without(table, IBV_QP_ACCESS_FLAGS);
  table.at({IBV_QPS_SQD, IBV_QPS_SQD}).optional &= ~IBV_QP_PORT;
  return table;
}

const Rows& rows_of(ibv_qp_type type) {
  static const auto* initiator =
      new Rows(without(rows(), IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC));
  static const auto* target = new Rows(without(
      rows(), IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RATE_LIMIT));
  static const auto* uc = new Rows(uc_rows());
  static const auto* ud = new Rows(ud_rows());
  if (type == IBV_QPT_UC) return *uc;
  if (type == IBV_QPT_UD) return *ud;
  return type == IBV_QPT_XRC_SEND ? *initiator : type == IBV_QPT_XRC_RECV ? *target : rows();
}

// Values that are in range for every attribute.
ibv_qp_attr valid(ibv_qp_state from, ibv_qp_state to) {
  ibv_qp_attr a{};
  a.qp_state = to;
  a.cur_qp_state = from;
  a.port_num = 1;
  a.path_mtu = IBV_MTU_1024;
  a.dest_qp_num = 0xFFFFFF;
  a.rq_psn = a.sq_psn = 0xFFFFFF;
  a.timeout = a.min_rnr_timer = 31;
  a.retry_cnt = a.rnr_retry = 7;
  a.max_rd_atomic = a.max_dest_rd_atomic = 16;
  a.path_mig_state = IBV_MIG_MIGRATED;
  a.rate_limit = 100'000'000;
  a.ah_attr.is_global = 1;
  a.ah_attr.port_num = 1;
  return a;
}

int check(ibv_qp_state from, const ibv_qp_attr& attributes, int mask,
          ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_state next = IBV_QPS_UNKNOWN;
  const int result = check_modify(type, from, attributes, mask, AttributeLimits{}, &next);
  if (result == 0) {
    EXPECT_EQ(next, (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : from);
  }
  return result;
}

struct Types : ::testing::TestWithParam<ibv_qp_type> {};

TEST_P(Types, EveryTransition) {
  const ibv_qp_type type = GetParam();
  const Rows& table = rows_of(type);
  unsigned legal = 0;
  for (ibv_qp_state from : kStates) {
    for (ibv_qp_state to : kStates) {
      SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
      const ibv_qp_attr a = valid(from, to);
      const auto row = table.find({from, to});
      if (row == table.end()) {
        EXPECT_EQ(check(from, a, IBV_QP_STATE, type), EINVAL);
        for (int extra : kAllAttributes)
          EXPECT_EQ(check(from, a, IBV_QP_STATE | extra, type), EINVAL);
        continue;
      }
      ++legal;
      const int required = row->second.required | IBV_QP_STATE;
      EXPECT_EQ(check(from, a, required, type), 0);
      for (int attribute : kAllAttributes) {
        SCOPED_TRACE(attribute);
        if ((row->second.required & attribute) != 0) {
          EXPECT_EQ(check(from, a, required & ~attribute, type), EINVAL);
        } else if ((row->second.optional & attribute) != 0 && attribute != IBV_QP_ALT_PATH) {
          EXPECT_EQ(check(from, a, required | attribute, type), 0);
        } else {
          // Not of this transition, or automatic path migration, which the device does not have.
          EXPECT_EQ(check(from, a, required | attribute, type), EINVAL);
        }
      }
      const int everything = required | (row->second.optional & ~IBV_QP_ALT_PATH);
      EXPECT_EQ(check(from, a, everything, type), 0);
    }
  }
  EXPECT_EQ(legal, table.size());
}

INSTANTIATE_TEST_SUITE_P(QpState, Types,
                         ::testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
                                           IBV_QPT_XRC_RECV));

TEST(QpState, WithoutStateItStays) {
  for (ibv_qp_state from : kStates) {
    const bool allows = rows().contains({from, from}) &&
                        (rows().at({from, from}).optional & IBV_QP_ACCESS_FLAGS) != 0;
    EXPECT_EQ(check(from, valid(from, IBV_QPS_ERR), IBV_QP_ACCESS_FLAGS), allows ? 0 : EINVAL)
        << from;
  }
}

TEST(QpState, CurrentStateMustBeTheCurrentOne) {
  ibv_qp_attr a = valid(IBV_QPS_RTS, IBV_QPS_RTS);
  a.cur_qp_state = IBV_QPS_SQD;
  EXPECT_EQ(check(IBV_QPS_RTS, a, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
}

TEST(QpState, StatesThatDoNotExist) {
  for (int state : {static_cast<int>(IBV_QPS_UNKNOWN), -1, 1000}) {
    ibv_qp_attr a = valid(IBV_QPS_RTS, IBV_QPS_RTS);
    std::memcpy(&a.qp_state, &state, sizeof state);
    EXPECT_EQ(check(IBV_QPS_RTS, a, IBV_QP_STATE), EINVAL) << state;
  }
}

TEST(QpState, OtherTypesHaveNoTransitions) {
  for (ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER}) {
    for (ibv_qp_state from : kStates) {
      for (ibv_qp_state to : kStates) EXPECT_FALSE(transition_of(type, from, to).legal);
    }
  }
}

struct RangeCase {
  const char* name;
  ibv_qp_state from, to;
  void (*spoil)(ibv_qp_attr*);
};

TEST(QpState, ValuesOutOfRange) {
  const std::vector<RangeCase> cases = {
      {"port 0", IBV_QPS_RESET, IBV_QPS_INIT, [](ibv_qp_attr* a) { a->port_num = 0; }},
      {"port 2", IBV_QPS_RESET, IBV_QPS_INIT, [](ibv_qp_attr* a) { a->port_num = 2; }},
      {"pkey index", IBV_QPS_RESET, IBV_QPS_INIT, [](ibv_qp_attr* a) { a->pkey_index = 1; }},
      {"access", IBV_QPS_RESET, IBV_QPS_INIT,
       [](ibv_qp_attr* a) { a->qp_access_flags = 1u << 12; }},
      {"mtu 0", IBV_QPS_INIT, IBV_QPS_RTR,
       [](ibv_qp_attr* a) { a->path_mtu = static_cast<ibv_mtu>(0); }},
      {"mtu 6", IBV_QPS_INIT, IBV_QPS_RTR,
       [](ibv_qp_attr* a) { a->path_mtu = static_cast<ibv_mtu>(6); }},
      {"qpn", IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr* a) { a->dest_qp_num = 1u << 24; }},
      {"rq psn", IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr* a) { a->rq_psn = 1u << 24; }},
      {"dest rd", IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr* a) { a->max_dest_rd_atomic = 17; }},
      {"rnr timer", IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr* a) { a->min_rnr_timer = 32; }},
      {"no grh", IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr* a) { a->ah_attr.is_global = 0; }},
      {"gid index", IBV_QPS_INIT, IBV_QPS_RTR,
       [](ibv_qp_attr* a) { a->ah_attr.grh.sgid_index = 1; }},
      {"av port", IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr* a) { a->ah_attr.port_num = 2; }},
      {"sq psn", IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr* a) { a->sq_psn = 1u << 24; }},
      {"timeout", IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr* a) { a->timeout = 32; }},
      {"retry", IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr* a) { a->retry_cnt = 8; }},
      {"rnr retry", IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr* a) { a->rnr_retry = 8; }},
      {"rd atomic", IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr* a) { a->max_rd_atomic = 17; }},
  };
  // Flags of regions mean nothing for a QP, and kernel devices take them.
  ibv_qp_attr of_region = valid(IBV_QPS_RESET, IBV_QPS_INIT);
  of_region.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND |
                              IBV_ACCESS_HUGETLB | IBV_ACCESS_RELAXED_ORDERING;
  const int required = rows().at({IBV_QPS_RESET, IBV_QPS_INIT}).required | IBV_QP_STATE;
  EXPECT_EQ(check(IBV_QPS_RESET, of_region, required), 0);
  for (const RangeCase& c : cases) {
    ibv_qp_attr a = valid(c.from, c.to);
    const int mask = rows().at({c.from, c.to}).required | IBV_QP_STATE;
    ASSERT_EQ(check(c.from, a, mask), 0) << c.name;
    c.spoil(&a);
    EXPECT_EQ(check(c.from, a, mask), EINVAL) << c.name;
  }
}

TEST(QpState, MtuOfThePortIsTheLimit) {
  AttributeLimits limits;
  limits.max_mtu = IBV_MTU_1024;
  ibv_qp_state next;
  ibv_qp_attr a = valid(IBV_QPS_INIT, IBV_QPS_RTR);
  const int mask = rows().at({IBV_QPS_INIT, IBV_QPS_RTR}).required | IBV_QP_STATE;
  EXPECT_EQ(check_modify(IBV_QPT_RC, IBV_QPS_INIT, a, mask, limits, &next), 0);
  a.path_mtu = IBV_MTU_2048;
  EXPECT_EQ(check_modify(IBV_QPT_RC, IBV_QPS_INIT, a, mask, limits, &next), EINVAL);
}

}  // namespace
}  // namespace ferry::rnic
