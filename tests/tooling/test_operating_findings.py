"""Findings on operating dlcpd, and the tests that fail where one of them comes back.

Those about systemd, boot, packages and clusters are in tests/deploy, on a booted machine or against
schemas.
"""

from pathlib import Path
from typing import Final

import pytest

from dlcpd.daemon.metrics.families import FAMILIES
from tests.named import has_function

TESTS: Final = Path(__file__).parents[1]
FINDINGS: Final = {  # by number: a report's title, and tests as FOLDER/MODULE::NAME
    "O1 beyond a few hosts a daemon calls itself broken": (
        "daemon/test_status::test_a_report_of_256_ranks_and_16_paths_is_whole",
        "attack/test_reports_fit::test_alarms_stay_where_rows_are_left_out",
    ),
    "O2 a job dies, and nobody is told": (
        "daemon/test_two_hosts::"
        "test_a_job_that_dies_is_a_warning_on_its_host_and_its_failures_outlive_it",
        "daemon/test_metrics::test_every_code_and_event_has_a_series_before_anything_happens",
        "tooling/test_dashboards::test_alerts_fire_for_first_events_and_not_before",
        "tooling/test_dashboards::test_every_alert_is_tested",
        "faults/test_alerts::test_a_fault_is_an_alert_and_none_fires_before_it",
        "daemon/test_two_hosts::"
        "test_a_rank_that_dies_between_two_operations_is_a_warning_on_its_host",
    ),
    "O3 the health check is slow, and less patient than the watchdog": (
        "daemon/test_metrics::test_health_is_as_patient_as_the_watchdog_and_asks_no_loop",
        "daemon/test_interrupted::test_health_of_a_daemon_whose_engine_is_stopped_ends_no_job",
        "daemon/test_service_manager::"
        "test_an_engine_that_sleeps_is_not_woken_and_one_that_is_stopped_is_found",
        "ctl/test_imports::test_a_command_for_probes_imports_little_as_it_runs",
        "deploy/test_kubernetes::test_probes_ask_the_metrics_port_for_what_it_answers",
    ),
    "O4 a daemon that starts before its network is alone": (
        "daemon/test_addresses::test_a_daemon_that_starts_before_its_network_moves_when_it_is_there",
        "daemon/test_addresses::test_an_address_that_cannot_be_had_is_an_alarm_and_tried_again",
        "daemon/test_addresses::test_a_host_without_ipv4_is_reached_by_ipv6",
    ),
    "O5 settings of a file are not in force": (
        "daemon/test_service_manager::test_what_is_live_changes_and_all_else_waits_by_name",
        "daemon/test_service_manager::test_a_reload_admits_other_users_and_says_what_waits",
        "deploy/test_ansible::test_the_role",
        "deploy/test_ansible::test_a_changed_setting_is_reloaded",
    ),
    "O6 failures in a row end service and socket": (
        "deploy/test_service::test_failures_in_a_row",
        "deploy/test_service::test_wrong_configuration",
        "deploy/test_service::test_taken_metrics_port",
        "daemon/test_metrics::test_a_daemon_serves_without_a_port_that_is_taken",
    ),
    "O7 drain ends trainings, and does not hold": (
        "daemon/test_cordon::test_a_drain_waits_for_the_running_jobs_and_ends_none",
        "daemon/test_cordon::test_a_cordon_is_kept_over_a_restart_and_one_for_once_is_not",
        "daemon/test_cordon::test_a_cordon_refuses_new_jobs_by_name_and_lets_running_ones_grow",
        "daemon/test_interrupted::"
        "test_a_drain_that_is_interrupted_ends_no_job_and_leaves_the_cordon",
        "deploy/test_kubernetes::test_a_drain_may_end",
    ),
    "O8 one version for everything, and no skew": (
        "tooling/test_build_version::test_commits_count_up_to_a_release_and_on",
        "daemon/test_versions::test_a_client_one_version_behind_trains_with_one_of_this_version",
        "daemon/test_versions::test_commands_ask_a_daemon_of_the_version_before",
        "deploy/test_rolling::test_an_upgrade_and_its_rollback",
        "daemon/test_versions::test_daemons_of_this_and_the_next_version_serve_a_job",
        "deploy/test_package::test_upgrade",
    ),
    "O9 it cannot be installed as the pages say": (
        "tooling/test_release::test_nothing_is_published_before_everything_was_tested",
        "tooling/test_release::test_both_architectures_are_built",
        "deploy/test_wheel::test_a_clean_environment_without_torch",
        "deploy/test_package::test_contents",
        "deploy/test_package::test_rpm",
    ),
    "O10 the log floods when it is needed": (
        "daemon/test_news_log::test_flaps_of_four_minutes_are_few_lines_and_all_are_counted",
        "daemon/test_cordon::test_operators_questions_come_after_hello_and_are_no_news",
    ),
    "O11 job is Prometheus' own label": (
        "daemon/test_metrics::test_a_scrape_says_what_status_says",
        "tooling/test_operating_findings::test_no_label_of_prometheus_is_ours",
    ),
    "O12 alerts and panels per rank and peer": (
        "daemon/test_metrics::test_ranks_of_a_host_share_the_series_of_a_path",
        "tooling/test_dashboards::test_alerts_on_states_fire_and_do_not_fire",
    ),
    "O13 conventions of metrics": (
        "daemon/test_metrics::test_documented_metrics_exist_and_existing_ones_are_documented",
        "daemon/test_web_config::test_a_port_with_tls_and_users_and_what_a_reload_changes",
        "daemon/test_web_config::test_a_wrong_file_is_one_error_by_name",
    ),
    "O14 clusters of today": (
        "deploy/test_clusters::test_pods_of_an_example_use_the_daemon_of_their_node",
        "deploy/test_clusters::test_another_configuration_makes_another_pod",
        "doctor/test_tracking::test_the_rules_keep_datagrams_out",
    ),
    "O15 names that say nothing": (
        "client/test_embedded::test_a_job_is_called_what_user_or_scheduler_calls_it",
        "daemon/test_sessions::test_jobs_have_their_given_names_unless_two_have_the_same",
        "client/test_reporting::test_metrics_and_summary_of_a_lossy_training",
    ),
    "O16 service, commands, pages and site": (
        "deploy/test_units::test_what_is_killed_when_memory_is_short_is_neither_daemon_nor_engine_first",
        "deploy/test_units::test_the_daemon_has_a_large_share_under_load_and_no_limit",
        "deploy/test_package::test_lintian_finds_nothing",
        "cli/test_colour::test_in_a_terminal_a_line_is_coloured_and_its_text_is_still_escaped",
        "ctl/test_manual::test_every_setting_is_explained",
        "ctl/test_bugreport::test_no_secret_of_any_source_is_in_the_archive_of_a_running_daemon",
        "ctl/test_bugreport::test_without_rights_each_part_says_so_and_the_others_are_there",
        "ctl/test_arguments::test_help_groups_commands_and_lists_each_once",
        "ctl/test_sessions::test_keys_of_a_terminal_change_top_and_end_it",
        "ctl/test_sessions::test_rows_of_a_job_or_host_and_columns_can_be_chosen",
        "ctl/test_report::test_a_training_names_its_run_first",
        "page/test_page::test_it_fits_a_narrow_window",
        "page/test_page::test_charts_and_alarms_have_text",
        "page/test_page::test_a_job_over_its_hosts",
        "page/test_report_page::test_a_report_fits_a_narrow_window",
        "tooling/test_site::test_each_public_name_of_the_client_is_on_its_page",
        "tooling/test_site::"
        "test_a_file_name_in_a_link_is_a_title_on_the_site_and_code_can_be_copied",
    ),
    "bad input: interruptions": (
        "daemon/test_interrupted::"
        "test_a_daemon_ends_though_a_scrape_is_open_and_the_next_scrape_is_refused",
        "daemon/test_interrupted::"
        "test_a_daemon_that_is_replaced_in_a_drain_is_said_and_the_next_version_is_cordoned",
        "deploy/test_rolling::test_an_upgrade_in_the_middle_of_a_drain",
        "daemon/test_cordon::test_a_full_disk_leaves_the_file_as_it_was",
    ),
}


def test_each_finding_has_its_row() -> None:
    numbers = [title.split()[0] for title in FINDINGS if title[0] == "O"]
    assert numbers == [f"O{number}" for number in range(1, 17)]


@pytest.mark.parametrize("test", sorted({test for tests in FINDINGS.values() for test in tests}))
def test_a_test_of_the_table_exists(test: str) -> None:
    module, _, name = test.partition("::")
    assert has_function(TESTS / f"{module}.py", name)


def test_no_label_of_prometheus_is_ours() -> None:
    """A scrape's own labels would be renamed, or replaced, by ours."""
    labels = {label for family in FAMILIES for label in family.labels}
    assert labels and labels & {"job", "instance", "exported_job", "exported_instance"} == set()
