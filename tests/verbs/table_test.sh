#!/bin/bash
# docs/verbs.md has a row for every public function of the stock library, every inline function of verbs.h and every
# flag and opcode, and none for what does not exist.   table_test.sh DOCS/verbs.md
set -u
page=$1
header=/usr/include/infiniband/verbs.h
stock=$(ldconfig -p | awk '/libibverbs.so.1 .*x86-64/ {print $NF; exit}')
{ [ -r $header ] && [ -n "$stock" ]; } || { echo "FAILED: no libibverbs-dev"; exit 1; }

enumerators() { # enum names...
  local name
  for name; do
    # The comments go first: they may hold anything.
    sed 's://.*::' $header | tr '\n' ' ' | sed 's:/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/::g' |
      grep -oE "enum $name *\{[^}]*\}" | sed 's/^[^{]*{//; s/}$//' | tr ',' '\n' |
      sed 's/=.*//; s/[[:space:]]//g' | grep -E '^IBV_' | grep -vE '_(RESERVED|SUPPORTED|SUPPORTED_FLAGS)$'
  done
}

wanted=$(
  nm -D --defined-only --with-symbol-versions "$stock" | awk '{print $3}' | grep '@@IBVERBS_1\.' | sed 's/@.*//' |
    grep -E 'ibv_|_to_ibv'
  # Public too, but kept for old drivers under its old version alone.
  echo ibv_register_driver
  tr '\n' ' ' < $header | grep -oE 'static inline [^(){};]*\(' | sed 's/[[:space:]]*($//; s/.*[ *]//' | grep -vE '^_'
  enumerators ibv_wr_opcode ibv_ops_wr_opcode ibv_send_flags ibv_ops_flags ibv_qp_create_send_ops_flags ibv_qp_type \
    ibv_qp_init_attr_mask ibv_qp_create_flags ibv_qp_open_attr_mask ibv_qp_attr_mask ibv_access_flags \
    ibv_rereg_mr_flags \
    ibv_mw_type ibv_dm_mask ibv_parent_domain_init_attr_mask ibv_xrcd_init_attr_mask ibv_cq_init_attr_mask \
    ibv_create_cq_attr_flags ibv_create_cq_wc_flags ibv_cq_attr_mask ibv_values_mask ibv_srq_type \
    ibv_srq_init_attr_mask ibv_srq_attr_mask ibv_wc_opcode ibv_wc_flags ibv_wc_status ibv_event_type \
    ibv_device_cap_flags
  grep -ohE 'IBV_ADVISE_MR_[A-Z_]+' /usr/include/infiniband/verbs_api.h)
wanted=$(echo "$wanted" | sort -u)
# shellcheck disable=SC2016 # the page's own backquotes
found=$(sed -n 's/^| \(`[^|]*\)|.*/\1/p' "$page" | grep -oE '`[A-Za-z0-9_]+`' | tr -d '`' | sort)

failures=0
say() { failures=$((failures + 1)); echo "FAILED: $*"; }
[ "$(echo "$wanted" | wc -l)" -gt 300 ] ||
  say "only $(echo "$wanted" | wc -l) names found in the library and its header"
for name in $(comm -23 <(echo "$wanted") <(echo "$found" | uniq)); do say "no row for $name"; done
for name in $(comm -13 <(echo "$wanted") <(echo "$found" | uniq)); do say "a row for $name, which does not exist"; done
for name in $(echo "$found" | uniq -d); do say "two rows for $name"; done
[ $failures = 0 ] && echo "docs/verbs.md names all $(echo "$wanted" | wc -l) functions, flags and opcodes"
exit $((failures != 0))
