// SPDX-License-Identifier: Apache-2.0

// What a compiler needs a while for, in deep recursion.
#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

std::map<std::string, std::vector<int>> count(const std::string &text) {
	std::map<std::string, std::vector<int>> found;
	std::regex word("([a-z]+)([0-9]*)");
	int n = 0;
	for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i)
		found[i->str()].push_back(n++);
	return found;
}

std::string list(const std::map<std::string, std::vector<int>> &found) {
	std::vector<std::pair<std::string, std::vector<int>>> all(found.begin(), found.end());
	std::sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a.second.size() > b.second.size(); });
	std::ostringstream out;
	for (const auto &w : all)
		out << w.first << ' ' << w.second.size() << '\n';
	return out.str();
}
